"""An agent of the OpenAI Agents SDK with one function tool: it must call the tool and use what it returned.

The instructions are as plain as a model of this size needs: with less, it calls the tool again instead of answering.

Usage: agents_sdk.py MODEL http|websocket; OPENAI_BASE_URL and OPENAI_API_KEY say where.
"""

import asyncio
import sys

from agents import (
    Agent,
    ModelSettings,
    Runner,
    function_tool,
    set_default_openai_responses_transport,
    set_tracing_disabled,
)

MODEL, TRANSPORT = sys.argv[1:]
calls = []


@function_tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    calls.append(city)
    return "21 degrees, sunny"


async def main():
    set_tracing_disabled(True)
    set_default_openai_responses_transport(TRANSPORT)
    agent = Agent(
        name="Weather",
        instructions="Call get_weather once. When it has answered, tell the user the weather in a sentence.",
        tools=[get_weather],
        model=MODEL,
        model_settings=ModelSettings(temperature=0, max_tokens=96),
    )
    whole = await Runner.run(agent, "What is the weather in Paris?")
    assert calls == ["Paris"], calls
    assert "21" in whole.final_output, whole.final_output

    streamed = Runner.run_streamed(agent, "What is the weather in Rome?")
    kinds = [event.name async for event in streamed.stream_events() if event.type == "run_item_stream_event"]
    assert kinds[0] == "tool_called" and "tool_output" in kinds and kinds[-1] == "message_output_created", kinds
    assert calls == ["Paris", "Rome"], calls
    assert "21" in streamed.final_output, streamed.final_output


asyncio.run(main())
print(f"ok {TRANSPORT}")
