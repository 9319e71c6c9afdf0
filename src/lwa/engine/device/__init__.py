"""Algorithm 1 with rows, subsets and θ all on an accelerator, thousands of chains in one program.

`resident.py` keeps the rows there and draws pages of proposals, `xla_loop.py` plays them as an ordinary JAX program.
`pallas_subsets.py` holds each chain's subset in the device's registers, with functions that `scalarise.py` writes out.
"""
