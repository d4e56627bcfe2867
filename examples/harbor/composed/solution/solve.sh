#!/bin/bash
printenv COLOUR > colour.txt
