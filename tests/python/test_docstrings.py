"""The examples in the package's docstrings do what they say."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "name", ["switchyard.comm", "switchyard.ep", "switchyard.moe", "switchyard.tensor", "switchyard._core"]
)
def test_examples(name):
    module = importlib.import_module(name)
    if name == "switchyard._core":  # a binary, which the finder does not look into
        examples = [doctest.DocTestParser().get_doctest(module.Tensor.__doc__, {}, "Tensor", None, 0)]
    else:
        examples = doctest.DocTestFinder().find(module, name)
    results = [doctest.DocTestRunner().run(example) for example in examples]
    assert sum(result.attempted for result in results) > 0
    assert sum(result.failed for result in results) == 0
