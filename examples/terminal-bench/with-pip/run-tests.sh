#!/bin/bash
pip install --break-system-packages pytest==8.4.1
python3 -m pytest $TEST_DIR/test_outputs.py -rA
