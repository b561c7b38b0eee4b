"""What schemathesis cannot know from the description: which model is here, and that time is short."""

import os

import schemathesis

LENGTHS = ("max_output_tokens", "max_completion_tokens", "max_tokens")


@schemathesis.hook
def map_body(context, body):
    """Names the model that is served, so that requests reach more than the look-up of a name, and keeps answers short.

    Only a right value is replaced by another right one: a wrong one is what the request is about.
    """
    if not isinstance(body, dict):
        return body
    if isinstance(body.get("model"), str):
        body["model"] = os.environ["FLINT_TEST_MODEL"]
    for name in LENGTHS:
        if type(body.get(name)) is int and body[name] > 16:
            body[name] = 16
    return body


@schemathesis.check
def says_what_is_wrong(context, response, case):
    """A refusal is JSON in OpenAI's form, with a sentence for a person."""
    if 400 <= response.status_code < 500:
        try:
            error = response.json()["error"]
            clear = bool(error["type"]) and len(error["message"]) > 10
        except (ValueError, KeyError, TypeError):
            clear = False
        assert clear, f"not an error in OpenAI's form: {response.text[:300]}"


@schemathesis.check
def refuses_or_warns(context, response, case):
    """For wrong input: what is taken all the same was left out, and the answer says so.

    The description knows tools and items that no text model has. The server leaves them out with a warning and does not
    look inside.
    """
    taken = response.status_code < 400
    assert not taken or '"warnings":["' in response.text, f"wrong input taken in silence: {response.text[:300]}"
