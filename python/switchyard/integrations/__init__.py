"""Switchyard inside other projects. Each module imports the project it is named after; nothing else does."""
