"""The currency agent: its card, whose tags decide routing without a model, and its MCP server."""

from trunkline import AgentPlugin, AgentSkill, McpServer, ReasoningAgentSpec

_CONVERSION = AgentSkill(
    id="conversion",
    name="Currency conversion",
    description="Converts amounts at the rates of the European Central Bank, since 1999.",
    tags=[
        *("currency", "currencies", "convert", "exchange rate"),
        *("dollar", "dollars", "euro", "euros", "yen", "pounds", "francs"),
        *("AUD", "BGN", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "HUF"),
        *("IDR", "ILS", "INR", "ISK", "JPY", "KRW", "MXN", "MYR", "NOK", "NZD", "PHP", "PLN"),
        *("RON", "RUB", "SEK", "SGD", "THB", "USD", "ZAR"),
        *("$", "€", "£", "¥"),
    ],
    examples=[
        "100 USD in EUR",
        "dollar to euro rate",
        "100 USD to EUR on 2020-03-02",
        "how much is 5 GBP in JPY",
    ],
)


plugin = AgentPlugin(
    agent=ReasoningAgentSpec(
        name="currency",
        description="Converts currencies at the European Central Bank's rates, past ones too.",
        skills=[_CONVERSION],
        servers=["currency"],
        repeatable=True,
    ),
    servers=lambda context: {
        "currency": McpServer(command="trunkline-mcp-currency", idle_s=context.mesh.tool_idle_s)
    },
)
