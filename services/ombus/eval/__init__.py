"""What a memory is worth: measures that anybody can run again."""
