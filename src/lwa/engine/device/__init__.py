"""Algorithm 1 where rows, U and θ all live on an accelerator, thousands of chains in one program.

`resident.py` keeps Y there and draws pages of proposals, `together.py` plays them as an ordinary JAX program,
`registers.py` with each chain's U in the registers of the device, from functions that `lanes.py` has written out.
"""
