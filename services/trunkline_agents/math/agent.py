"""The math agent's card. What it can do is its MCP server's affair; tags decide routing."""

from trunkline.reasoning import ModelChoice, ReasoningAgent, ToolSource
from trunkline.v1 import agent_card_pb2

_ARITHMETIC = agent_card_pb2.AgentSkill(
    id="arithmetic",
    name="Arithmetic",
    description="Works out expressions exactly, or to as many digits as asked for.",
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
_EQUATIONS = agent_card_pb2.AgentSkill(
    id="equations",
    name="Equations",
    description="Solves equations.",
    tags=["solve", "equation", "="],
    examples=["solve x^2-5x+6=0"],
)
_CALCULUS = agent_card_pb2.AgentSkill(
    id="calculus",
    name="Calculus",
    description="Finds derivatives and integrals.",
    tags=[
        *("derivative", "differentiate", "derive"),
        *("integral", "integrate", "antiderivative"),
    ],
    examples=["derivative of x^3", "integrate x*sin(x)"],
)


def agent(tools: ToolSource, model: ModelChoice | None = None) -> ReasoningAgent:
    """Return the agent, which calls the tools of the MCP server `math`."""
    card = agent_card_pb2.AgentCard(
        name="math",
        description="Calculates, solves equations, differentiates and integrates, exactly.",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[_ARITHMETIC, _EQUATIONS, _CALCULUS],
    )
    return ReasoningAgent(card, servers=["math"], tools=tools, model=model, repeatable=True)
