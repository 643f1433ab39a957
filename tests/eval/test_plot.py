"""Bars are drawn as XML that a browser reads."""

from xml.etree import ElementTree

from ombus.eval.plot import bars


def test_each_value_is_a_bar_of_its_length() -> None:
    drawn = ElementTree.fromstring(bars("a < b", {"x & y": (1.0, 0.5)}, ("memory", "window")))

    widths = [
        float(each.attrib["width"])
        for each in drawn.iter()
        if "y" in each.attrib and "width" in each.attrib
    ]
    assert 410.0 in [round(width) for width in widths]
    assert 205.0 in [round(width) for width in widths]


def test_nothing_is_drawn_of_nothing() -> None:
    ElementTree.fromstring(bars("empty", {}, ()))
    ElementTree.fromstring(bars("zero", {"x": (0.0,)}, ("memory",)))
