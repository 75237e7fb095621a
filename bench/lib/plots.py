"""Plots as SVG text: strips for distributions, bars, lines over points, and timelines. Nothing but the standard
library.

Colours are classes of the page's style sheet (s0, s1, …: the systems in their order); each system also has a marker
of its own. Texts are drawn at their size: a plot has a fixed width, and the page may scroll.
"""

import html
import math

MARKERS = ("square", "diamond", "circle", "up", "down")
LETTER = 6.4  # the width of a character, about, px
FAR = 1e-12


def escape(value):
    return html.escape(str(value), quote=True)


def tag(name, content=None, **attributes):
    """An element. Attributes: _ is -, a trailing _ is dropped (class_); numbers have two digits behind the point."""
    words = ""
    for key, value in attributes.items():
        if value is not None:
            value = f"{value:.2f}" if isinstance(value, float) else value
            words += f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
    return f"<{name}{words}/>" if content is None else f"<{name}{words}>{content}</{name}>"


def text(x, y, words, class_="label", anchor=None):
    return tag("text", escape(words), x=float(x), y=float(y), class_=class_, text_anchor=anchor)


def line(x1, y1, x2, y2, class_):
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def marker(kind, x, y, index, size=4.5):
    if kind == "circle":
        return tag("circle", cx=float(x), cy=float(y), r=float(size), class_=f"mark s{index}")
    shapes = {"square": ((-.9, -.9), (.9, -.9), (.9, .9), (-.9, .9)),
              "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
              "up": ((0, -1.2), (1.2, .9), (-1.2, .9)), "down": ((0, 1.2), (1.2, -.9), (-1.2, -.9))}
    points = " ".join(f"{x + size * dx:.2f},{y + size * dy:.2f}" for dx, dy in shapes[kind])
    return tag("polygon", points=points, class_=f"mark s{index}")


def system_marker(index, x, y, size=4.5):
    return marker(MARKERS[index % len(MARKERS)], x, y, index, size)


def svg(width, height, title, parts):
    return tag("svg", tag("title", escape(title)) + "".join(parts), xmlns="http://www.w3.org/2000/svg", role="img",
               viewBox=f"0 0 {width:.0f} {height:.0f}", width=f"{width:.0f}", height=f"{height:.0f}")


def short(value):
    """A tick's number."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:g}".replace("-", "\u2212")


# Scales.


class Linear:
    """From 0 on."""

    def __init__(self, values, begin, end):
        top = max([value for value in values if value > 0], default=1)
        step = 10 ** math.floor(math.log10(top))
        step = next(step * k for k in (0.2, 0.5, 1, 2, 5) if top / (step * k) <= 5)
        self.ticks = [i * step for i in range(int(math.ceil(top / step - 1e-9)) + 1)]
        self.top, self.begin, self.end = self.ticks[-1], begin, end

    def at(self, value):
        return self.begin + (self.end - self.begin) * value / self.top


class Log:
    """Ticks at 1, or at 1, 2 and 5 where there are few decades."""

    def __init__(self, values, begin, end):
        values = [value for value in values if value > 0] or [1]
        low, high = math.log10(min(values)), math.log10(max(values))
        low, high = low - 0.04 * max(high - low, 1), high + 0.04 * max(high - low, 1)
        self.low, self.high, self.begin, self.end = low, high, begin, end
        steps = (1,) if high - low > 2.2 else (1, 2, 5)
        ticks = [k * 10.0 ** decade for decade in range(math.floor(low), math.ceil(high) + 1) for k in steps]
        self.ticks = [tick for tick in ticks if low <= math.log10(tick) <= high]

    def at(self, value):
        place = (math.log10(max(value, FAR)) - self.low) / (self.high - self.low)
        return self.begin + (self.end - self.begin) * min(max(place, 0), 1)


def scale(values, begin, end):
    """Logarithmic where the numbers are far apart."""
    values = [value for value in values if value > 0]
    return Log(values, begin, end) if values and max(values) / min(values) > 12 else Linear(values, begin, end)


def x_axis(axis, y, top, unit, right):
    parts = [line(axis.begin, y, right, y, "axis")]
    for tick in axis.ticks:
        parts += [line(axis.at(tick), top, axis.at(tick), y, "grid"),
                  text(axis.at(tick), y + 15, short(tick), "tick", "middle")]
    how = ", logarithmic" if isinstance(axis, Log) else ""
    return parts + [text((axis.begin + right) / 2, y + 31, unit + how, "tick", "middle")]


# Strips and bars: a row for each system.

WIDTH, NAME, VALUE, ROW, HEAD = 498, 62, 150, 21, 24


def strips(title, unit, blocks):
    """@blocks: (heading, rows); a row is (index of the system, its name, quantiles, text). Quantiles: by name, of which
    "median" must be there, low and high are the spread of values without a distribution."""
    every = [value for _, rows in blocks for _, _, q, _ in rows for value in q.values() if value and value > 0]
    left, right = NAME, WIDTH - VALUE
    axis = scale(every, left, right) if every else Linear([1], left, right)
    parts, y = [], 4
    for heading, rows in blocks:
        parts.append(text(0, y + 14, heading, "heading"))
        y += HEAD
        for row in rows:
            parts += strip(axis, y + ROW / 2, *row)
            y += ROW
        y += 6
    return svg(WIDTH, y + 40, title, x_axis(axis, y, HEAD, unit, right) + parts)


def strip(axis, y, index, name, quantiles, words):
    at = {key: axis.at(value) for key, value in quantiles.items() if value is not None}
    parts = [text(0, y + 4, name, f"system t{index}")]
    if "max" in at and "p90" in at:
        parts += [line(at["p90"], y, at.get("p999", at["max"]), y, f"thin s{index}"),
                  line(at["max"], y - 4, at["max"], y + 4, f"thin s{index}")]
    low, high = ("p10", "p90") if "p90" in at else ("low", "high")
    if low in at and high in at:
        parts.append(line(at[low], y, at[high], y, f"thick s{index}"))
    parts.append(system_marker(index, at["median"], y))
    return parts + [text(WIDTH, y + 4, words, "value", "end")]


def bars(title, unit, blocks):
    """@blocks: (heading, rows); a row is (index of the system, its name, value, low, high, text)"""
    every = [row[4] for _, rows in blocks for row in rows]
    left, right = NAME, WIDTH - VALUE
    axis = Linear(every, left, right)
    parts, y = [], 4
    for heading, rows in blocks:
        if heading:
            parts.append(text(0, y + 14, heading, "heading"))
            y += HEAD
        for index, name, value, low, high, words in rows:
            parts += [text(0, y + ROW / 2 + 4, name, f"system t{index}"),
                      tag("rect", x=float(left), y=float(y + 4), width=max(1.0, float(axis.at(value) - left)),
                          height=float(ROW - 8), class_=f"bar s{index}")]
            if high > low:
                parts.append(line(axis.at(low), y + ROW / 2, axis.at(high), y + ROW / 2, "whisker"))
            parts.append(text(WIDTH, y + ROW / 2 + 4, words, "value", "end"))
            y += ROW
        y += 6
    return svg(WIDTH, y + 40, title, x_axis(axis, y, 4, unit, right) + parts)


# Lines.

CHART_WIDTH, CHART_HEIGHT = 492, 264
UNIT_ROOM = 28  # above the topmost tick: the unit stands there


def spread_labels(wanted, least, low, high):
    """Moves labels apart. @wanted: y by key

    Return: y by key, at least `least` apart, within low and high if they fit."""
    placed, last = {}, None
    for key, y in sorted(wanted.items(), key=lambda item: item[1]):
        last = max(y, low) if last is None else max(y, last + least)
        placed[key] = last
    over = max(0, (last or 0) - high)
    return {key: y - over for key, y in placed.items()}


def lines(title, unit, axis_title, series, names, failures=(), tick_text=short):
    """@series: (index of the system, name, [(point, value, low, high)]); names: of the points that are measured;
    failures: (index of the system, point, why)"""
    left, right, top, bottom = 52, CHART_WIDTH - 66, UNIT_ROOM, CHART_HEIGHT - 44
    values = [value for _, _, points in series for _, _, low, high in points for value in (low, high)]
    y_axis = scale(values, bottom, top + (12 if failures else 0))
    x = Log([max(point, 0.5) for point in names], left + 8, right - 8)
    place = {point: x.at(max(point, 0.5)) for point in names}
    parts = [line(left, bottom, right, bottom, "axis")]
    for tick in y_axis.ticks:
        parts += [line(left, y_axis.at(tick), right, y_axis.at(tick), "grid"),
                  text(left - 7, y_axis.at(tick) + 4, short(tick), "tick", "end")]
    parts.append(text(0, 10, unit + (", logarithmic" if isinstance(y_axis, Log) else ""), "tick"))
    last = -100.0
    for point in names:
        words = tick_text(point)
        if place[point] - last >= LETTER * len(words) + 6:
            parts.append(text(place[point], bottom + 16, words, "tick", "middle"))
            last = place[point]
    parts.append(text((left + right) / 2, bottom + 34, axis_title, "tick", "middle"))
    for index, name, points in series:
        parts += one_line(index, name, points, place, y_axis)
    ends = {index: (place[points[-1][0]], y_axis.at(points[-1][1])) for index, _, points in series if points}
    labels = spread_labels({index: y for index, (_, y) in ends.items()}, 14, top + 4, bottom)
    for index, name, points in series:
        if points:
            x_end, y_end = ends[index]
            parts.append(text(right + 2, labels[index] + 4, name, f"system t{index}"))
            if x_end < right - 12:
                parts.append(line(x_end + 6, y_end, right - 2, labels[index], f"lead s{index}"))
    for index, point, why in failures:
        at = place.get(point, right) + 5 * (index - 1)
        parts.append(tag("g", tag("title", escape(why)) + line(at - 4, top - 4, at + 4, top + 4, f"failed s{index}") +
                         line(at - 4, top + 4, at + 4, top - 4, f"failed s{index}")))
    return svg(CHART_WIDTH, CHART_HEIGHT, title, parts)


def one_line(index, name, points, place, y_axis):
    path = " ".join(f"{place[point]:.1f},{y_axis.at(value):.1f}" for point, value, _, _ in points)
    parts = [tag("polyline", points=path, class_=f"line s{index}")] if len(points) > 1 else []
    for point, value, low, high in points:
        if high > low:
            parts.append(line(place[point], y_axis.at(low), place[point], y_axis.at(high), f"thin s{index}"))
        parts.append(tag("g", tag("title", escape(f"{name}, {point}: {value:.4g}")) +
                         system_marker(index, place[point], y_axis.at(value), 3.6)))
    return parts


# Timelines.

TIME_WIDTH, LANE, TIME_LEFT, TIME_VALUE = 1040, 26, 62, 196


def timelines(title, what, from_ms, to_ms, blocks):
    """@blocks: a block per system: (its index, name, lanes); a lane per survivor: (first ms of its counts, counts a ms,
    text). what: happens at time 0"""
    left, right = TIME_LEFT, TIME_WIDTH - TIME_VALUE
    top = 20

    def at(ms):
        return left + (right - left) * (min(max(ms, from_ms), to_ms) - from_ms) / (to_ms - from_ms)

    parts, y = [], top
    highest = max((count for _, _, lanes in blocks for _, counts, _ in lanes for count in counts), default=1) or 1
    for index, name, lanes in blocks:
        parts.append(text(0, y + LANE * len(lanes) / 2 + 4, name, f"system t{index}"))
        for first, counts, words in lanes:
            y += LANE
            parts += [line(left, y, right, y, "grid"), lane(index, first, counts, at, y, highest),
                      text(TIME_WIDTH, y - 8, words, "value", "end")]
        y += 12
    parts += [line(at(0), top - 6, at(0), y - 6, "fault"), text(at(0) + 5, top - 6, what, "tick")]
    for ms in range(int(math.ceil(from_ms / 50) * 50), int(to_ms) + 1, 50):
        parts += [line(at(ms), y - 6, at(ms), y - 1, "axis"), text(at(ms), y + 12, short(ms), "tick", "middle")]
    words = f"ms from the {what}; height: kernels that ended in a millisecond"
    parts.append(text((left + right) / 2, y + 28, words, "tick", "middle"))
    return svg(TIME_WIDTH, y + 36, title, parts)


def lane(index, first, counts, at, y, highest):
    """A step for each millisecond."""
    steps, x_last, height_last = [f"M{at(first):.1f},{y:.1f}"], at(first), 0.0
    for i, count in enumerate(counts):
        height = (LANE - 6) * min(1.0, count / highest)
        if height != height_last:
            steps.append(f"H{at(first + i):.1f}V{y - height:.1f}")
        height_last, x_last = height, at(first + i + 1)
    return tag("path", d="".join(steps) + f"H{x_last:.1f}V{y:.1f}Z", class_=f"area s{index}")
