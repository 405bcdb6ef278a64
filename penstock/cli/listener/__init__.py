"""Commands that talk to listeners, or look into their log buffers: send, ctl, stress (with load), inspect."""
