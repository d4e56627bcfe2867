printenv SHAPE > shape.txt
