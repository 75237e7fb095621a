// CUDA_VISIBLE_DEVICES: this program runs itself with several values and each says how many devices
// it sees.

#include "check.h"

static int count_devices()
{
	int count = -1;
	cudaError_t error = cudaGetDeviceCount(&count);

	printf("%s, count %d", name_of(error), error == cudaSuccess ? count : 0);
	printf(", driver: %s\n", name_of(cuInit(0)));
	return 0;
}

int main(int argc, char **)
{
	cudaDeviceProp p;
	char uuid[64] = "GPU-";
	std::string path = own_path();

	if (argc > 1)
		return count_devices();
	CHECK(cudaGetDeviceProperties(&p, 0));
	for (int i = 0; i < 16; i++)
		snprintf(uuid + strlen(uuid), 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
			(unsigned char)p.uuid.bytes[i]);
	for (const char *value :
		{"0", "", "-1", "1000", "0,1000", "0,0", "nonsense", (const char *)uuid, "GPU-00000000"}) {
		int status;

		printf("%s: ", value == uuid ? "UUID" : value);
		fflush(stdout);
		pid_t child = fork();
		if (child == 0) {
			setenv("CUDA_VISIBLE_DEVICES", value, 1);
			execl(path.c_str(), path.c_str(), "count", (char *)nullptr);
			_exit(99);
		}
		EXPECT(waitpid(child, &status, 0) == child && status_of(status) == 0);
	}
	return 0;
}
