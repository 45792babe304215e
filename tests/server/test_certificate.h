// A key and a certificate for tests alone: they protect nothing.
#pragma once

namespace temper {

inline constexpr char kTestKey[] = R"(-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGPukPyw+eKgfFoYz
QTl4Jn2+QPYoBbdjSnRhxc3BISyhRANCAARHZxzm242iXzAaEyw/9OueniiyRdVq
wZ3Wk1Uh+THnO0HblwH2FAWQ7XQ4mRKmvPWbhQl+ekYWalViPMJvM+ub
-----END PRIVATE KEY-----
)";
inline constexpr char kTestCertificate[] = R"(-----BEGIN CERTIFICATE-----
MIIBmzCCAUGgAwIBAgIUeWmu2ysZP2gImh2nP7MbDH+dz6IwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMjEwMDQ1OFoYDzIxMjYxMDI5
MTAwNDU4WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARHZxzm242iXzAaEyw/9OueniiyRdVqwZ3Wk1Uh+THnO0HblwH2FAWQ
7XQ4mRKmvPWbhQl+ekYWalViPMJvM+ubo28wbTAdBgNVHQ4EFgQUG9Z6hn6qE93O
PsgTvTH+S9+yZ+gwHwYDVR0jBBgwFoAUG9Z6hn6qE93OPsgTvTH+S9+yZ+gwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSAAwRQIhALnd5UTHx/8ZAa4XaLj0yb/CjCh/4z/0pE7BP+u2BW5yAiBm
Th39jx1HXBbwRGwlbdXtGRI1TcEc7cqBzqbK28l1SQ==
-----END CERTIFICATE-----
)";

}  // namespace temper
