"""The math agent: its card, whose tags decide routing, and its MCP server."""

from trunkline import AgentPlugin, AgentSkill, McpServer, ReasoningAgentSpec

_ARITHMETIC = AgentSkill(
    id="arithmetic",
    name="Arithmetic",
    description="Works out expressions exactly, or to a requested number of digits.",
    tags=[
        *("calculate", "compute", "evaluate", "simplify"),
        *("multiply", "multiplied", "divide", "divided", "sqrt", "cbrt", "factorial"),
        # With a number, since people also read the New York Times, and log in.
        *("plus #", "minus #", "times #", "add #", "subtract #", "# percent", "# digits"),
        *("sum of #", "root of #", "# squared", "# cubed", "# to the power", "gcd", "lcm"),
        *("sin #", "cos #", "tan #", "exp #", "log #", "ln #", "sin x", "cos x", "tan x", "log x"),
        *(
            "+",
            "-",
            "*",
            "/",
            "^",
            "**",
            "%",
            "!",
            "\N{MULTIPLICATION SIGN}",
            "\N{MINUS SIGN}",
            "÷",
            "√",
        ),
    ],
    examples=["what is 1+2", "(2+3)*4", "15% of 240", "sqrt(2) to 10 digits"],
)
_EQUATIONS = AgentSkill(
    id="equations",
    name="Equations",
    description="Solves equations.",
    tags=["solve", "equation", "="],
    examples=["solve x^2-5x+6=0"],
)
_CALCULUS = AgentSkill(
    id="calculus",
    name="Calculus",
    description="Finds derivatives and integrals.",
    tags=[
        *("derivative", "differentiate", "derive"),
        *("integral", "integrate", "antiderivative"),
    ],
    examples=["derivative of x^3", "integrate x*sin(x)"],
)


plugin = AgentPlugin(
    agent=ReasoningAgentSpec(
        name="math",
        description="Calculates, solves equations, differentiates and integrates, exactly.",
        skills=[_ARITHMETIC, _EQUATIONS, _CALCULUS],
        servers=["math"],
        repeatable=True,
    ),
    servers=lambda context: {
        "math": McpServer(command="trunkline-mcp-math", idle_s=context.mesh.tool_idle_s)
    },
)
