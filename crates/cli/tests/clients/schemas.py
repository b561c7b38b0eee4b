"""Answers and strict tool calls held to real schemas, checked by a validator that is not ours.

Every schema of schemas.json is asked for with several seeds at temperature 1, where a small model writes nearly anything
that it is allowed to: as the format of the answer, or as the arguments of a strict tool. An answer cut by its limit
fails like a wrong one: the schemas are bounded so that every answer has room to end. That is why their numbers are
integers and their free keys have patterns: no keyword bounds the digits of a fraction, nor a key.

Usage: schemas.py MODEL answer|call; OPENAI_BASE_URL and OPENAI_API_KEY say where.
"""

import concurrent.futures
import json
import pathlib
import sys
import time

import openai
from jsonschema import Draft202012Validator

MODEL, KIND = sys.argv[1:]
SEEDS = range(10)
# The server batches what comes at once.
AT_ONCE = 8
TOKENS_MAX = 2048
client = openai.OpenAI(max_retries=0, timeout=240)


def answer(case, seed):
    """The text of an answer that must be JSON by the schema."""
    form = {"type": "json_schema", "name": case["name"], "schema": case["schema"], "strict": True}
    response = ask(case, seed, text={"format": form})
    return response.output_text


def call(case, seed):
    """The arguments of a call that the model must make."""
    tool = {"type": "function", "name": case["name"], "parameters": case["schema"], "strict": True}
    tool["description"] = "Takes the result."
    response = ask(case, seed, tools=[tool], tool_choice="required", parallel_tool_calls=False)
    (item,) = response.output
    assert item.type == "function_call" and item.name == case["name"], item
    return item.arguments


def ask(case, seed, **form):
    settings = {"temperature": 1.0, "max_output_tokens": TOKENS_MAX, "store": False, "extra_body": {"seed": seed}}
    response = client.responses.create(model=MODEL, input=case["prompt"], **settings, **form)
    assert response.status == "completed", (response.status, response.incomplete_details, response.error, tail(response))
    return response


def tail(response):
    """The end of what there is, to see why it did not end."""
    return response.model_dump_json(include={"output"})[-600:]


def check(kind, case, seed):
    """What is wrong with one generation; None if nothing is."""
    try:
        value = json.loads(kind(case, seed))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    checker = Draft202012Validator.FORMAT_CHECKER
    wrong = next(Draft202012Validator(case["schema"], format_checker=checker).iter_errors(value), None)
    return wrong and f"{wrong.json_path}: {wrong.message} in {json.dumps(value)}"


def main():
    cases = json.loads(pathlib.Path(__file__).with_name("schemas.json").read_text())
    for case in cases:
        Draft202012Validator.check_schema(case["schema"])
    jobs = [(globals()[KIND], case, seed) for case in cases for seed in SEEDS]
    start, valid = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
        for (_, case, seed), wrong in zip(jobs, threads.map(lambda job: check(*job), jobs)):
            valid += wrong is None
            if wrong:
                print(f"FAILED {case['name']} seed {seed}: {wrong}", flush=True)
    print(f"{KIND}: {valid} of {len(jobs)} valid, {time.monotonic() - start:.0f} s")
    sys.exit(valid != len(jobs))


main()
