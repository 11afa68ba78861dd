"""Who leads each broker group: sampled, judged, changed by promotion and switchover, and recorded as a timeline."""
