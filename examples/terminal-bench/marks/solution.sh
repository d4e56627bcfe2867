echo ok > state
