// Declares shared memory whose size is given at launch. It is a macro, so that tests can replace it
// where kernels run on the host.
#pragma once

#define WALSH_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
