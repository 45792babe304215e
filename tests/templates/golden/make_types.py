"""Writes types.txt, the casts, sums, comparisons, largest and least of every element type as NumPy, ml_dtypes and ONNX's reference
have them: python make_types.py > types.txt. Needs numpy, ml_dtypes and onnx (made with 2.4.6, 0.6.0 and 1.23.2).

A line is `operation operand-types result-type attributes : operands = results`, elements as hexadecimal bits.
"""
import ml_dtypes
import numpy as np
from onnx import numpy_helper

np.seterr(all="ignore")
rng = np.random.default_rng(1)

FLOATS = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "f4e2m1": ml_dtypes.float4_e2m1fn,
}
E8M0 = {"f8e8m0": ml_dtypes.float8_e8m0fnu}
INTS = {
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "u64": np.uint64, "u32": np.uint32,
    "u16": np.uint16, "u8": np.uint8, "i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "i2": ml_dtypes.int2,
    "u2": ml_dtypes.uint2,
}
WIDE = {"f32": np.float32, "f64": np.float64}
ALL = {**WIDE, **FLOATS, **E8M0, **INTS, "bool": np.bool_}
BITS = {"i4": 4, "u4": 4, "f4e2m1": 4, "i2": 2, "u2": 2, "bool": 8}


def bits_of(name):
    return BITS.get(name, 8 * np.dtype(ALL[name]).itemsize)


def of_bits(name, bits):
    """An array of the type from its bits; ml_dtypes keeps small integers sign-extended in a byte."""
    storage = f"u{np.dtype(ALL[name]).itemsize}"
    bits = np.asarray(bits, np.uint64)
    if name in ("i4", "i2"):
        n = bits_of(name)
        bits = np.where(bits >> np.uint64(n - 1), bits | np.uint64(0xFF ^ ((1 << n) - 1)), bits)
    return bits.astype(storage).view(ALL[name])


def to_bits(name, array):
    bits = np.ascontiguousarray(array).view(f"u{np.dtype(ALL[name]).itemsize}").astype(np.uint64)
    return bits & np.uint64((1 << bits_of(name)) - 1) if bits_of(name) < 64 else bits


def text(name, array):
    return " ".join(f"{int(b):x}" for b in to_bits(name, array))


def emit(op, types, attributes, operands, result_type, result):
    lists = " , ".join(text(t, x) for t, x in zip(types, operands))
    print(f"{op} {' '.join(types)} {result_type} {attributes or '-'} : {lists} = {text(result_type, result)}")


def some(x, n=40):
    return x if len(x) <= n else rng.choice(x, n, replace=False)


def patterns(name):
    """Every element of small types, some of larger ones; of NaN the usual one alone."""
    n = bits_of(name)
    if name == "bool":
        return of_bits(name, [0, 1])
    if n <= 8:
        x = of_bits(name, np.arange(1 << n))
    else:
        edges = [0, 1, 2, (1 << (n - 1)) - 1, 1 << (n - 1), (1 << (n - 1)) + 1, (1 << n) - 1]
        x = of_bits(name, np.concatenate([np.array(edges, np.uint64), rng.integers(0, 1 << 62, 40, np.uint64) >>
                                          np.uint64(62 - n) if n < 62 else rng.integers(0, 1 << 63, 40, np.uint64)]))
    if name in INTS:
        return x
    numbers = x[~np.isnan(x.astype(np.float64))]
    if name == "f4e2m1":
        return numbers
    return np.concatenate([numbers, np.array([np.nan], np.float32).astype(ALL[name])])


def about(name, wide):
    """Numbers of the type `wide` around those of `name`: themselves, ties, and the neighbours of ties."""
    x = np.sort(patterns(name).astype(np.float64)) if bits_of(name) <= 8 else np.sort(
        np.concatenate([of_bits(name, b + np.arange(2)).astype(np.float64)
                        for b in rng.integers(0, (1 << bits_of(name)) - 2, 12, np.uint64)]))
    x = x[np.isfinite(x)]
    ties = (x[1:] + x[:-1]) / 2
    if len(ties) > 24:
        ties = np.concatenate([ties[:3], rng.choice(ties, 8, replace=False), ties[-3:]])
    largest = float(ml_dtypes.finfo(ALL[name]).max)
    ends = largest * np.array([1, 1.01, 1.03, 1.0625, 1.07, 1.125, 1.2, 2, 1e10])
    least = float(ml_dtypes.finfo(ALL[name]).smallest_subnormal)
    ends = np.concatenate([ends, least * np.array([1, 0.5, 0.5000001, 0.4999999, 0.25, 1.5, 1e-3])])
    both = np.concatenate([ties, ends, -ends, [0.0, -0.0, np.inf, -np.inf, np.nan]]).astype(wide)
    near = ties.astype(wide)
    return np.concatenate([both, np.nextafter(near, wide(np.inf)), np.nextafter(near, wide(-np.inf))])


def casts():
    for name in FLOATS:
        for wide_name, wide in WIDE.items():
            x = about(name, wide)
            emit("cast", [wide_name], "", [x], name, x.astype(ALL[name]))
            if name.startswith("f8"):
                emit("cast", [wide_name], "saturate=1", [x], name, numpy_helper.saturate_cast(x, ALL[name]))
            every = patterns(name) if wide_name == "f32" else some(patterns(name))
            emit("cast", [name], "", [every], wide_name, every.astype(wide))
        for to in ("f16", "bf16", "f8e4m3fn", "f8e5m2", "bool"):
            if to != name:
                x = some(patterns(name))
                emit("cast", [name], "", [x], to, x.astype(ALL[to]))
        for whole in ("i32", "i8", "u4"):
            x = patterns(name)
            x = x[np.abs(x.astype(np.float64)) < 100] if whole == "i8" else x[np.abs(x.astype(np.float64)) < 1e9]
            x = some(x[x.astype(np.float64) >= 0] if whole == "u4" else x)
            emit("cast", [name], "", [x], whole, x.astype(ALL[whole]))
    x = np.concatenate([about("f8e8m0", np.float32),
                        np.array([1.5, 1.4999999, 1.5000001, 3, 6, 2.0**127, 1.7e38, 3e38, 2.0**-127, 2.0**-126,
                                  2.0**-128, 1.6 * 2.0**-127], np.float32)])
    for rounding in ("nearest", "up", "down"):
        for saturate in (0, 1):
            emit("cast", ["f32"], f"saturate={saturate};rounding={rounding}", [x], "f8e8m0",
                 numpy_helper.to_float8e8m0(x, bool(saturate), rounding))
    emit("cast", ["f8e8m0"], "", [patterns("f8e8m0")], "f32", patterns("f8e8m0").astype(np.float32))
    for name in INTS:
        x = some(patterns(name), 24)
        for to in ("f32", "f64", "f16", "bf16", "f8e4m3fn", "bool", "i32", "u8", "i64", "u64", "i4"):
            if to != name and not (to == "i4" and name in ("u4", "i2", "u2")):  # ml_dtypes has no such cast
                emit("cast", [name], "", [x], to, x.astype(ALL[to]))
        n = bits_of(name)
        low, high = (0, 2.0**n) if name[0] == "u" else (-(2.0 ** (n - 1)), 2.0 ** (n - 1))
        for wide_name, wide in WIDE.items():
            v = np.concatenate([rng.uniform(low, high, 20), [0, 0.5, 1, 1.5, -0.0]]).astype(wide)
            v = v[(v >= low) & (v < high)]
            emit("cast", [wide_name], "", [v], name, v.astype(ALL[name]))


def pairs(name):
    x = patterns(name)
    n = 40
    return rng.choice(x, n), rng.choice(x, n)


def operations():
    for name in ALL:
        a, b = pairs(name)
        b = np.where(np.arange(len(b)) % 4 == 0, a, b).astype(ALL[name])
        emit("equal", [name, name], "", [a, b], "bool", a == b)
        if name == "bool":
            continue
        emit("less", [name, name], "", [a, b], "bool", a < b)
        if name != "f8e8m0":
            emit("add", [name, name], "", [a, b], name, a + b)


def extremes():
    """Half of them with a NaN, where the type has one, and without infinities: there alone NumPy's choice is ours."""
    for name in ALL:
        if name == "bool":
            continue
        x = patterns(name)
        wide = x.astype(np.float64)
        for kept in (x[~np.isnan(wide)], x[~np.isinf(wide)]):
            x = rng.choice(kept, 40)
            emit("arg_max", [name], "", [x], "i64", np.array([np.argmax(x)]))
            emit("arg_min", [name], "", [x], "i64", np.array([np.argmin(x)]))
            emit("arg_max", [name], "select_last_index=1", [x], "i64", np.array([len(x) - 1 - np.argmax(x[::-1])]))


casts()
operations()
extremes()
