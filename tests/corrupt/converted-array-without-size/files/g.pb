de {e: ""
tr {ey: "d"
ue {pe: D  } }r {
y: "e"e {s {pe:N2
pe {}
 } } }
}
node {
name: "n0" op: "TensorArrayV3"
ame: "node_0_0"tr {
ey: "d"
  ue {
 b: t   }
  }
  attr {
    key: "dtype"
    value {
      type: DT_FLOAT
    }
  }
  attr {
    key: "dynsize"value {
   }
  }
  attr {key: "element_shape"value {
      shape {
   dim {}
      }
    }
  }
r {
 y: "es"
  ue {
  }
  }
  attr {
    key: "tenname"value {
      s: ""
    }
  }
}
node {
  name: "node_1"
  op: "Const"
r {
 y: "dtype"value {
  ype: T32
    }
  }
  attr {
    key: "value"
alue {
   nsor {
 sope {
   }
  }
    }
  }
}
node {
  name: "node_2"
  op: "Plader"
r {
 y: "dtype"value {
  ype: OAT
    }
  }
  attr {
lue {
    }
  }
}
node {
  name: "node"
  op: "TensorArrayReadV3"
 t: "n"
  input: "node_1"
ut: "2"
  attr {
    key: "dtype"
 lue {e: DT }
  }
}
vns {
ducer: 1482
}