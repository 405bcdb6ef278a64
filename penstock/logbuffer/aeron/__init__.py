"""What only compatibility with Aeron needs, and no process of Penstock uses.

Read ``inspector`` (the text that Aeron's LogInspector prints, and JSON), then ``readers`` (readers by name, as a media
driver keeps them). Imports ``logbuffer``.
"""
