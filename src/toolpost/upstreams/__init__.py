"""What runs behind the gateway: `process_tree` starts and ends processes, `reaper` watches each of them."""
