

apartSpaceToBatchND
F
arrayTensorArrayV3two*
dtype0*
element_shape:	€€€€€ 

axis

b0

b1

block

border

both


branches

called

chosen

never

norm0

norm1

padad2

s0

s1

s2

same

	same_high

scale

	scaled_up

size

start

table
	
trained


training

two
	
updated

v0

v2

w3

w4

w5

writtenTensorArrayWriteV3