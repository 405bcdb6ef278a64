"""A simulated network and kernel: the real receivers read datagrams and connections whose faults a seed draws.

Read ``run`` (``simulate_sockets``), ``kernel`` and ``streams`` (sockets), ``listeners`` (lives of real receivers),
``senders`` and ``stream_senders``, then ``recount`` and ``promises`` (what is checked).
"""
