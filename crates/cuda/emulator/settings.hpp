// Numbers from the environment; `driver.cpp` and `compiler.cpp` say which.
#pragma once
#include <cstdlib>

static inline unsigned long long setting(const char* name, unsigned long long otherwise) {
    const char* value = getenv(name);
    return value && *value ? strtoull(value, nullptr, 10) : otherwise;
}
