
"
node_0Placeholder*
dtype0	
"
node_1Placeholder*
dtype0
1
node_2Const*
dtype0	*
value
B
"
node_3Placeholder*
dtype0
H
nodeSparseTensorDenseMatMulnode_0node_1node_2node_3*
T0