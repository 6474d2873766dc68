"""A model for Inspect AI that answers by the words of a question, right or wrong as a test wants it."""

import asyncio
import os
import signal
from types import SimpleNamespace

from inspect_ai.model import ModelAPI, ModelOutput, ModelUsage, modelapi


def solved(task: str, text: str) -> str:
    """By the words of the question alone."""
    *items, last = text.rsplit("List: ", 1)[1].removesuffix("\nAnswer:").split()
    if task == "number":
        return items[-int(last)]
    (only,) = [item for item in items if item[0] == last[1]]
    return only


def right(text: str) -> str:
    """The right answer to either task."""
    return solved("letter" if "pairs" in text else "number", text)


ORACLE = SimpleNamespace(asked=[], says=right, breaks_after=None, presses_after=None)
"""What was asked, what is said, after how many questions the model breaks, after how many somebody presses Ctrl-C."""


def ready(**wanted) -> SimpleNamespace:
    """The oracle, with nothing asked."""
    vars(ORACLE).update(asked=[], says=right, breaks_after=None, presses_after=None)
    vars(ORACLE).update(wanted)
    return ORACLE


class Oracle(ModelAPI):
    async def generate(self, input, tools, tool_choice, config):
        text = input[-1].text
        if len(ORACLE.asked) == ORACLE.breaks_after:
            raise RuntimeError("the oracle is silent")
        if len(ORACLE.asked) == ORACLE.presses_after:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)
        ORACLE.asked.append(text)
        output = ModelOutput.from_content(self.model_name, f" {ORACLE.says(text)}\n")
        output.usage = ModelUsage(input_tokens=100, output_tokens=2, total_tokens=102)
        return output


@modelapi(name="oracle")
def oracle():
    return Oracle
