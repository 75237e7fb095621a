// What the programs of this folder share. Each of them exercises one feature, runs natively and
// through the service, and prints only what must be the same both times: results, names of errors;
// no times, no addresses, no process numbers. It ends with status 0 where its results are right.
// Every wait in it is bounded.

#pragma once

/* Barriers and pipelines in shared memory are initialized by hand, as they must be. */
#pragma nv_diag_suppress static_var_with_dynamic_init

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vector>

static inline const char *name_of(cudaError_t error)
{
	return cudaGetErrorName(error);
}

static inline const char *name_of(CUresult error)
{
	const char *name = nullptr;

	return cuGetErrorName(error, &name) == CUDA_SUCCESS ? name : "unknown";
}

/* The status of another library: all of them have 0 for success. */
template <class S> static inline const char *name_of(S)
{
	return "status";
}

template <class S> static inline void check_status(S status, const char *call, int line)
{
	if ((int)status == 0)
		return;
	printf("line %d: %s: %s (%d)\n", line, call, name_of(status), (int)status);
	fflush(stdout);
	exit(1);
}

/* Ends the program where a call of the runtime, the driver or a library did not succeed. */
#define CHECK(...) check_status((__VA_ARGS__), #__VA_ARGS__, __LINE__)

/* Ends the program where a condition does not hold. */
#define EXPECT(...)                                                                                          \
	do {                                                                                                 \
		if (!(__VA_ARGS__)) {                                                                        \
			printf("line %d: not so: %s\n", __LINE__, #__VA_ARGS__);                             \
			fflush(stdout);                                                                      \
			exit(1);                                                                             \
		}                                                                                            \
	} while (0)

static inline uint64_t checksum(const void *bytes, size_t size)
{
	uint64_t hash = 1469598103934665603ull;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * 1099511628211ull;
	return hash;
}

/* Prints one line: a label and the checksum of the values. */
template <class T> static inline void report(const char *label, const std::vector<T> &values)
{
	printf("%s %016llx\n", label, (unsigned long long)checksum(values.data(), values.size() * sizeof(T)));
}

/* Words that look random and are the same every time. */
static inline std::vector<uint32_t> random_words(size_t count, uint32_t seed = 1)
{
	std::vector<uint32_t> words(count);

	for (auto &word : words) {
		seed = seed * 1664525u + 1013904223u;
		word = seed ^ (seed >> 15);
	}
	return words;
}

/* Numbers in [0, 1) that look random and are the same every time. */
static inline std::vector<float> random_floats(size_t count, uint32_t seed = 1)
{
	std::vector<float> numbers;

	for (uint32_t word : random_words(count, seed))
		numbers.push_back((float)(word >> 8) / (1 << 24));
	return numbers;
}

/* Device memory that lives as long as its scope. A new one is zero, or a copy of a host vector. */
template <class T> struct buffer {
	T *at = nullptr;
	size_t count;

	explicit buffer(size_t count_) : count(count_)
	{
		CHECK(cudaMalloc(&at, bytes()));
		CHECK(cudaMemset(at, 0, bytes()));
		CHECK(cudaStreamSynchronize(0));
	}
	explicit buffer(const std::vector<T> &values) : buffer(values.size())
	{
		CHECK(cudaMemcpy(at, values.data(), bytes(), cudaMemcpyHostToDevice));
	}
	buffer(const buffer &) = delete;
	~buffer()
	{
		cudaFree(at);
	}
	size_t bytes() const
	{
		return count * sizeof(T);
	}
	operator T *() const
	{
		return at;
	}
	/* The contents after everything that was submitted before. */
	std::vector<T> read() const
	{
		std::vector<T> values(count);

		CHECK(cudaDeviceSynchronize());
		CHECK(cudaMemcpy(values.data(), at, bytes(), cudaMemcpyDeviceToHost));
		return values;
	}
};

static inline double seconds()
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Polls until the condition holds; false after twenty seconds. */
template <class F> static inline bool wait_until(F condition)
{
	for (double end = seconds() + 20; !condition(); usleep(100))
		if (seconds() > end)
			return false;
	return true;
}

/* For kernels that wait for the host or another stream: false after ten seconds. */
static __device__ inline bool spin_until(const volatile int *word, int value)
{
	uint64_t begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	while (*word != value) {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
		if (now - begin > 10000000000ull)
			return false;
	}
	return true;
}

/* Keeps a kernel busy for a while. */
static __device__ inline void spin_for(uint64_t nanoseconds)
{
	uint64_t begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - begin < nanoseconds);
}

static inline int status_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs a function in a forked process and returns its exit status, or 128 + signal. To be called
 * while this process has not used CUDA, unless that is what is tested. */
template <class F> static inline int in_child(F function)
{
	int status = 0;

	fflush(stdout);
	pid_t child = fork();
	EXPECT(child >= 0);
	if (child == 0)
		exit(function());
	EXPECT(waitpid(child, &status, 0) == child);
	return status_of(status);
}

/* The path of this program, for those that run themselves again. */
static inline std::string own_path()
{
	char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path));

	EXPECT(length > 0 && (size_t)length < sizeof(path));
	return std::string(path, (size_t)length);
}
