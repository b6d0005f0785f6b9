"""Forms made from types."""

from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from toolpost.authoring.forms import form_of
from toolpost.contracts.errors import ToolFailed


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Person(BaseModel):
    name: str = Field(min_length=1, description="first and last name")
    born: date | None = None
    color: Color = Color.RED
    likes: list[Literal["tea", "coffee"]] = []
    email: str = Field(default="", json_schema_extra={"format": "email"})

    @field_validator("name")
    @classmethod
    def _refuse_secrets(cls, name: str) -> str:
        if name == "hunter2":
            raise ValueError("that is no name")
        return name


@dataclass
class Point:
    x: float
    y: float = 0.0


def test_a_model_becomes_a_flat_form() -> None:
    form = form_of(Person)

    assert form.schema == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "description": "first and last name"},
            "born": {"type": "string", "format": "date"},
            "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
            "likes": {"type": "array", "items": {"type": "string", "enum": ["tea", "coffee"]}, "default": []},
            "email": {"type": "string", "format": "email", "default": ""},
        },
        "required": ["name"],
    }
    read = form.read({"name": "Ada", "born": "1815-12-10", "color": "blue", "likes": ["tea"]})
    assert read == Person(name="Ada", born=date(1815, 12, 10), color=Color.BLUE, likes=["tea"])


@pytest.mark.parametrize(
    ("kind", "field", "content", "value"),
    [
        (bool, {"type": "boolean"}, {"value": True}, True),
        (int, {"type": "integer"}, {"value": 3}, 3),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, {"value": "b"}, "b"),
        (Color, {"type": "string", "enum": ["red", "blue"]}, {"value": "red"}, Color.RED),
    ],
)
def test_a_single_value_is_a_form_with_one_field(kind: Any, field: Any, content: Any, value: Any) -> None:
    form = form_of(kind)

    assert form.schema == {"type": "object", "properties": {"value": field}, "required": ["value"]}
    assert form.read(content) == value


def test_a_data_class_and_a_schema_may_be_asked_for() -> None:
    assert form_of(Point).read({"x": 1.5}) == Point(1.5)
    schema = {"type": "object", "properties": {"x": {"type": "number"}}}
    assert form_of(schema).schema == schema
    assert form_of(schema).read({"x": 1}) == {"x": 1}


@pytest.mark.parametrize("content", [{}, {"name": ""}, {"name": "Ada", "color": "green"}, {"name": "hunter2"}])
def test_an_answer_that_does_not_fit_is_the_clients_error(content: Any) -> None:
    with pytest.raises(ToolFailed) as refused:
        form_of(Person).read(content)

    assert refused.value.details["issues"]
    assert "hunter2" not in str(refused.value.as_object())


class Nested(BaseModel):
    inner: Point


@pytest.mark.parametrize("kind", [Nested, list[str], dict[str, int]])
def test_what_no_form_can_show_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="fields of a form"):
        form_of(kind)
