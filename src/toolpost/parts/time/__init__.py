"""The time, here and elsewhere: the smallest part. A gateway without settings loads it.

plugin  its two tools
part    yields the plugin where it is wanted
"""

from toolpost.parts import Part

PART = Part(
    name="time",
    summary="The time, here and elsewhere.",
    opens="toolpost.parts.time.part:open_time",
    plugins=("time",),
)
