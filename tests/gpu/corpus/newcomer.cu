// Programs that start beside another one whose kernel does not end: they must load their code and
// compute all the same. This program runs itself as the other one, whose kernel ends when it is
// told to through pinned memory, or by itself after a while. (A kernel that fills the device leaves
// newcomers no time natively.)
//
// alone: its kernel runs until it is told to end

#include "check.h"

#define LIMIT_NS 60000000000ull

__global__ void run_on(volatile uint32_t *words)
{
	unsigned long long begin, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
	if (blockIdx.x == 0 && threadIdx.x == 0)
		words[1] = 1;
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (!words[0] && now - begin < LIMIT_NS);
	if (threadIdx.x == 0)
		atomicAdd((uint32_t *)&words[2], 1);
}

__global__ void mix(uint32_t *data, size_t count, uint32_t round)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
		i += (size_t)gridDim.x * blockDim.x)
		data[i] = (data[i] ^ round) * 2654435761u + (uint32_t)i;
}

__global__ void fold(const uint32_t *data, size_t count, unsigned long long *sum)
{
	unsigned long long own = 0;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
		i += (size_t)gridDim.x * blockDim.x)
		own += data[i];
	atomicAdd(sum, own);
}

/* Says on fd 1 that its kernel runs, ends it when fd 0 is closed. */
static int other_process(unsigned blocks)
{
	volatile uint32_t *words;
	char byte = 'r';

	CHECK(cudaHostAlloc((void **)&words, 4096, cudaHostAllocMapped));
	words[0] = words[1] = words[2] = 0;
	run_on<<<blocks, 64>>>(words);
	CHECK(cudaGetLastError());
	while (!words[1])
		usleep(1000);
	EXPECT(write(1, &byte, 1) == 1);
	EXPECT(read(0, &byte, 1) == 0);
	words[0] = 1;
	CHECK(cudaDeviceSynchronize());
	return words[2] == blocks ? 0 : 2;
}

struct neighbour {
	pid_t pid;
	int in, out;
};

static struct neighbour start(const char *blocks)
{
	std::string path = own_path();
	int in[2], out[2];
	char byte = 0;

	EXPECT(pipe(in) == 0 && pipe(out) == 0);
	fflush(stdout);
	pid_t pid = fork();
	EXPECT(pid >= 0);
	if (pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[1]);
		execl(path.c_str(), path.c_str(), blocks, nullptr);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	EXPECT(read(out[0], &byte, 1) == 1);
	return {pid, in[1], out[0]};
}

static void end(const struct neighbour &other)
{
	int status;

	/* Its kernel has not ended. */
	EXPECT(waitpid(other.pid, &status, WNOHANG) == 0);
	close(other.in);
	EXPECT(waitpid(other.pid, &status, 0) == other.pid);
	close(other.out);
	printf("the other one's end: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static uint64_t now_ms()
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

/* In a process of its own: a program that starts. */
static int newcomer(uint32_t seed)
{
	const size_t count = 1 << 22;
	uint64_t begin = now_ms();
	buffer<uint32_t> data(random_words(count, seed));
	buffer<unsigned long long> sum(1);

	mix<<<256, 256>>>(data, count, seed);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	fprintf(stderr, "newcomer %u: its first kernel has ended after %llu ms\n", seed,
		(unsigned long long)(now_ms() - begin));
	for (uint32_t round = 0; round < 20; round++)
		mix<<<256, 256>>>(data, count, round);
	fold<<<256, 256>>>(data, count, sum);
	CHECK(cudaGetLastError());
	printf("newcomer %u: sum %llu\n", seed, sum.read()[0]);
	report("data", data.read());
	fflush(stdout);
	return 0;
}

static void run_newcomer(uint32_t seed)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	EXPECT(pid >= 0);
	if (pid == 0)
		_exit(newcomer(seed));
	EXPECT(waitpid(pid, &status, 0) == pid);
	printf("its end: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(int argc, char **argv)
{
	if (argc == 2)
		return other_process((unsigned)atoi(argv[1]));
	struct neighbour other = start("1");

	for (uint32_t seed = 1; seed <= 2; seed++)
		run_newcomer(seed);
	end(other);
	return 0;
}
