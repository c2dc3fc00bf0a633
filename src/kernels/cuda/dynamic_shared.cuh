// Declares shared memory whose size is given at launch, by a macro that tests replace where kernels
// run on the host.
#pragma once

#define WALSH_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
