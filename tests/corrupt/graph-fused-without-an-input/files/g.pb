
Conv2D

low

same
	array:1

x