"""What a group did, counted and recorded: a room of its own, behind one seam.

The seam: `MeteringService.counts_for` gives the append loops what they count into, `pulled` gets each answered pull. The
broker's root calls both; no other module of the broker counts for billing. Read in this order:

    meter.py          what is counted in one interval (pure)
    records.py        intervals as records on RMQ_SYS_METERING, and back (pure)
    recount.py        counting again from the log what is in no record (pure)
    clock.py journal.py storage.py samples.py    steady time; what a crash must not lose; stored bytes; lag and connections
    report.py         what a follower handed out, reported to its leader
    service.py        when all of that happens
"""
