
0
node_0Size*
dtype0*
shape
:
!
nodeBesselI1node_0*
T0"@