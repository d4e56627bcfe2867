echo $((2 * $(cat data/number))) > double.txt
