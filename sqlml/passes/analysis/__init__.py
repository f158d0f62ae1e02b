"""What passes and the planner want to know of a Program; nothing here changes one."""
