"""What happens to hardware: heard, numbered, made into alerts, sent on."""
