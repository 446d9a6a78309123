"""The currency agent's card. What it can do is its MCP server's affair; tags decide routing."""

from trunkline.reasoning import ModelChoice, ReasoningAgent, ToolSource
from trunkline.v1 import agent_card_pb2

_CONVERSION = agent_card_pb2.AgentSkill(
    id="conversion",
    name="Currency conversion",
    description="Converts amounts at the rates of the European Central Bank, since 1999.",
    tags=[
        *("currency", "currencies", "convert", "exchange", "exchange rate"),
        *("dollar", "dollars", "euro", "euros", "yen", "pound", "pounds", "franc", "francs"),
        *("AUD", "BGN", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "HUF"),
        *("IDR", "ILS", "INR", "ISK", "JPY", "KRW", "MXN", "MYR", "NOK", "NZD", "PHP", "PLN"),
        *("RON", "RUB", "SEK", "SGD", "THB", "USD", "ZAR"),
        *("$", "€", "£", "¥"),
    ],
    examples=["100 USD in EUR", "100 USD to EUR on 2020-03-02", "how much is 5 GBP in JPY"],
)


def agent(tools: ToolSource, model: ModelChoice | None = None) -> ReasoningAgent:
    """Return the agent, which calls the tools of the MCP server `currency`."""
    card = agent_card_pb2.AgentCard(
        name="currency",
        description="Converts currencies at the European Central Bank's rates, past ones too.",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[_CONVERSION],
    )
    return ReasoningAgent(card, servers=["currency"], tools=tools, model=model, repeatable=True)
