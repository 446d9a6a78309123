"""The math agent: its card, whose tags decide routing without a model, and its MCP server."""

from trunkline import AgentPlugin, AgentSkill, McpServer, ReasoningAgentSpec

_ARITHMETIC = AgentSkill(
    id="arithmetic",
    name="Arithmetic",
    description="Works out expressions exactly, or to a requested number of digits.",
    tags=[
        *("calculate", "compute", "evaluate", "simplify", "sqrt", "cbrt", "factorial"),
        *("gcd", "lcm", "# digits", "# percent", "+", "-", "*", "**", "/", "^", "%", "√"),
        *("\N{MULTIPLICATION SIGN}", "÷"),
    ],
    examples=["what is 1+2", "what is 15% of 240", "sqrt(2) to 30 digits"],
)
_EQUATIONS = AgentSkill(
    id="equations",
    name="Equations",
    description="Solves equations.",
    tags=["solve", "equation", "="],
    examples=["solve x^2-5x+6=0"],
)
_REWRITING = AgentSkill(
    id="rewriting",
    name="Factor and expand",
    description="Factors and expands expressions, and factors whole numbers into primes.",
    tags=["factor", "factorise", "factorize", "expand", "multiply out"],
    examples=["factor x^2-5x+6", "expand (x+1)^3"],
)
_CALCULUS = AgentSkill(
    id="calculus",
    name="Calculus",
    description="Finds derivatives and integrals.",
    tags=["derivative", "differentiate", "derive", "integral", "integrate"],
    examples=["derivative of x^3", "integrate x*sin(x)"],
)


plugin = AgentPlugin(
    agent=ReasoningAgentSpec(
        name="math",
        description="Calculates, solves, differentiates and integrates, exactly.",
        skills=[_ARITHMETIC, _EQUATIONS, _REWRITING, _CALCULUS],
        servers=["math"],
        repeatable=True,
    ),
    servers=lambda context: {
        "math": McpServer(command="trunkline-mcp-math", idle_s=context.mesh.tool_idle_s)
    },
)
