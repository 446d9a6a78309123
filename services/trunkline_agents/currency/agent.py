"""The currency agent: its card, whose tags decide routing, and its MCP server."""

from trunkline import AgentPlugin, AgentSkill, McpServer, ReasoningAgentSpec

_CONVERSION = AgentSkill(
    id="conversion",
    name="Currency conversion",
    description="Converts amounts at the rates of the European Central Bank, since 1999.",
    tags=[
        *("currency", "currencies", "convert", "exchange", "exchange rate"),
        # Not only "money", which documents have too.
        *(
            f"money do {who} {verb}"
            for who in ("they", "people")
            for verb in ("use", "have", "pay", "need")
        ),
        *("what money do i need in", "which money do i need in", "what money does"),
        *("which money does", "money is used in", "money used in", "kind of money"),
        *("dollar", "dollars", "euro", "euros", "yen", "pound", "pounds", "franc", "francs"),
        *(
            "in dollars",
            "in euros",
            "in euro",
            "in pounds",
            "in yen",
            "in francs",
            "in EUR",
            "in USD",
        ),
        *("in GBP", "in JPY", "in CHF", "to dollars", "to euros", "to pounds", "to yen", "to EUR"),
        *("to USD", "to GBP", "to JPY", "to CHF"),
        *("bucks", "quid", "sterling", "rupee", "rupees", "yuan", "renminbi", "krona", "kronor"),
        *(
            "krone",
            "kroner",
            "koruna",
            "zloty",
            "forint",
            "peso",
            "pesos",
            "baht",
            "shekel",
            "shekels",
            *("lira", "lire", "ruble", "rubles", "ringgit", "rupiah", "leva", "lei"),
        ),
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
