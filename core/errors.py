"""The errors of this project: one sentence each, fit to be shown to a person as it stands.

Everything else that is raised inside `core` is a fault of ours and keeps its traceback.
"""


class ClozeError(Exception):
    """Base of the errors that a person can do something about."""


class ModelError(ClozeError):
    """A model can't be had, or can't do what it was asked for."""


class TextError(ClozeError):
    """A text, or a position in it, can't be used."""


class SettingError(ClozeError, ValueError):
    """A setting is outside its limits; the message names the value and the limit."""
