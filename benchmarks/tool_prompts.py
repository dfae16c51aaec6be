"""Five tools and forty requests that each ask for one of them."""

from typing import Any


def _tool(name: str, about: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    function = {"name": name, "description": about, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS: list[dict[str, Any]] = [
    _tool(
        "get_weather",
        "The weather in a city.",
        {
            "city": {"type": "string", "minLength": 1},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        ["city", "unit"],
    ),
    _tool(
        "create_event",
        "Put an event into the calendar.",
        {
            "title": {"type": "string", "minLength": 1},
            "day": {
                "type": "string",
                "enum": ["monday", "tuesday", "wednesday", "thursday", "friday"],
            },
            "hour": {"type": "integer", "minimum": 0, "maximum": 23},
        },
        ["title", "day", "hour"],
    ),
    _tool(
        "send_message",
        "Send a short message to people.",
        {
            "to": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 5},
            "text": {"type": "string", "minLength": 1},
        },
        ["to", "text"],
    ),
    _tool(
        "convert_money",
        "Convert an amount from one currency to another.",
        {
            "amount": {"type": "number"},
            "source": {"type": "string", "enum": ["EUR", "USD", "GBP", "JPY"]},
            "target": {"type": "string", "enum": ["EUR", "USD", "GBP", "JPY"]},
        },
        ["amount", "source", "target"],
    ),
    _tool(
        "search_files",
        "Search the files of a project.",
        {
            "query": {"type": "string", "minLength": 1},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "options": {
                "type": "object",
                "properties": {"case": {"type": "boolean"}, "folder": {"type": "string"}},
                "required": ["case"],
                "additionalProperties": False,
            },
        },
        ["query", "limit", "options"],
    ),
]

PROMPTS: tuple[str, ...] = (
    "What is the weather in Paris, in celsius?",
    "Tell me the weather in New York in fahrenheit.",
    "Is it raining in Tokyo? Use celsius.",
    "How warm is it in Cairo today, in celsius?",
    "I fly to Oslo tomorrow. How cold is it there, in fahrenheit?",
    "Weather for Rio de Janeiro please, celsius.",
    "Do I need a coat in London? Answer from the weather, in celsius.",
    "Check the weather in San Francisco in fahrenheit.",
    "Put a dentist appointment into my calendar on Tuesday at 9.",
    "Create an event called Team lunch on Friday at 12.",
    "Schedule a code review for Wednesday at 15.",
    "I meet Anna on Monday at 8. Add it to the calendar.",
    "Add a gym session on Thursday at 18.",
    "Please plan a budget meeting on Monday at 10.",
    "Remember the parents' evening on Thursday at 19 in my calendar.",
    "Block Friday at 16 for writing the report.",
    "Send a message to Bob: the build is green.",
    "Tell Alice and Carol that the meeting is cancelled.",
    "Message Dave that I am ten minutes late.",
    "Write to Erin, Frank and Grace: lunch is ready.",
    'Send "happy birthday" to Heidi.',
    "Let Ivan know that the server is down.",
    "Ask Judy by message whether she has the keys.",
    "Send Mallory and Niaj this text: the release is out.",
    "Convert 100 euros to US dollars.",
    "How many yen are 25.50 British pounds?",
    "Change 5000 JPY into EUR.",
    "What are 12 dollars in pounds?",
    "Convert 0.99 USD to JPY.",
    "I have 250 GBP. How much is that in euros?",
    "Turn 1000 EUR into yen.",
    "How many dollars do I get for 80 pounds?",
    "Search the files for the word timeout, ten results, ignoring case.",
    "Find TODO in the folder src, case matters, at most 50 hits.",
    "Look for main in all files, 5 results, any case.",
    "Search for the string http:// in docs, limit 20, case does not matter.",
    "Where is the class Parser defined? Show 3 results, match case.",
    "Find all files that mention license, up to 100, ignore case.",
    "Search password in the folder config, first 10, case sensitive.",
    "List the first 7 places where cancel is called, in any case.",
)
