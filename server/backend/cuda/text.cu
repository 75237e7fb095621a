// What stands for the driver's vprintf and __assertfail in kernels of clients: each writes a record
// into the client's ring (shm/text.h) instead of into the context's buffer, which all clients
// share. text_ptx.inc is made from this file by text.sh; that is what is compiled for the device
// when an executor starts (text.c).
//
// They are put into code that was compiled for somebody else's functions: they refer to nothing
// outside themselves, and have to do with 24 registers.
//
// Nobody waits for room. The driver's __assertfail does: where its buffer is full, each thread
// looks 10 000 times across the bus whether somebody has made room. Nobody does in a context that
// nobody synchronises. A kernel in whose 8192 blocks an assertion failed had the device for more
// than four seconds before its first trap, and so had the next program's (H100, driver 580.159.04).
//
// A format is walked twice, first to find out how large the record is, then to write it. Arguments
// lie behind `arguments` in their order, each aligned to its size, four bytes or eight;
// client/text/render.c takes formats apart in the same way.

typedef unsigned int uint32;
typedef unsigned long long uint64;

/* struct shm_text */
struct ring {
	uint32 magic, reserved0;
	uint64 bytes;
	uint64 reserved1[6];
	uint64 head, asserted, told;
	uint64 reserved2[5];
	volatile uint64 words[];
};

#define KIND_PRINTF   1
#define KIND_ASSERT   3
#define RETURN_NULL   (-1) /* the format is NULL */
#define RETURN_FULL   (-2) /* the record is larger than the ring */
#define RING_FULL     (~0ull)
#define TEXT_OF_NULL  0x296c6c756e28ull /* "(null)" */
/* For the first assertion's record: 20 ms at most, in steps that leave the bus to those who
 * write. */
#define TOLD_TRIES    40
#define TOLD_NS	      500000
/* What the first warp of each multiprocessor is ahead of the others, and how many times that a thread
 * gives the others before its trap. A sleep may last twice as long as is said. */
#define AHEAD_NS      1000000
#define BEHIND_TRIES  4

struct writer {
	struct ring *ring;
	uint64 at;
	bool writes; /* otherwise it counts */
};

static __device__ __forceinline__ void put(struct writer &writer, uint64 word)
{
	if (writer.writes)
		writer.ring->words[(writer.at & (writer.ring->bytes - 1)) / 8] = word;
	writer.at += 8;
}

/* A text in whole words, with at least one NUL. @most: characters; negative: up to its end */
static __device__ __forceinline__ void put_text(struct writer &writer, const char *text, int most)
{
	uint32 shift = 0, c;
	uint64 word = 0;

#pragma unroll 1
	do {
		c = most-- ? *(const volatile unsigned char *)text++ : 0;
		word |= (uint64)c << shift;
		shift += 8;
		if (shift == 64 || !c) {
			put(writer, word);
			word = shift = 0;
		}
	} while (c);
}

/* Where 8448 warps asked for room at once, the first trap came after 0.1 s (H100): accesses queue
 * at the bus. So the first warp of each multiprocessor goes ahead. Those fill the ring, and the
 * others see that it is full. */
static __device__ __forceinline__ void let_others_ask()
{
	uint32 warp;

	asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
	if (warp)
		asm volatile("nanosleep.u32 %0;" : : "n"(AHEAD_NS));
}

/* Whether assertions have had their half of the ring. A grid of them would go round it many times,
 * and threads would write over what others are writing. */
static __device__ __forceinline__ bool is_full(struct ring *ring, uint32 total)
{
	uint64 most = ring->bytes / 2;

	return *(volatile uint64 *)&ring->asserted > most || atomicAdd(&ring->asserted, (uint64)total) > most;
}

/* Takes room for a record. The ring lies behind the bus: one access for all threads of a warp that
 * are here together, in their order. Return: where; RING_FULL, for assertions alone */
static __device__ __forceinline__ uint64 take(struct ring *ring, uint32 bytes, bool asserts)
{
	uint32 mask = __activemask(), lane, total = 0, before = 0, leader = __ffs(mask) - 1;
	uint64 start = 0;

	asm("mov.u32 %0, %%laneid;" : "=r"(lane));
#pragma unroll 1
	for (uint32 left = mask; left; left &= left - 1) {
		uint32 from = __ffs(left) - 1, its = __shfl_sync(mask, bytes, from);

		total += its;
		before += from < lane ? its : 0;
	}
	if (lane == leader)
		start = asserts && is_full(ring, total) ? RING_FULL : atomicAdd(&ring->head, (uint64)total);
	start = __shfl_sync(mask, start, leader);
	return asserts && start == RING_FULL ? start : start + before;
}

/* The ring's address is a number that text.c replaces: nothing may be computed from it before. */
static __device__ __forceinline__ struct ring *find_ring()
{
	struct ring *ring;

	asm volatile("mov.u64 %0, 0x1122334455667788;" : "=l"(ring));
	return ring;
}

/* Writes the first word of a record, behind all others. */
static __device__ __forceinline__ void finish(const struct writer &writer, uint64 start, uint64 kind)
{
	__threadfence_system();
	writer.ring->words[(start & (writer.ring->bytes - 1)) / 8] =
		(writer.at - start) | kind << 32 | start / 8 << 40; /* SHM_TEXT_FIRST */
}

extern "C" __device__ int frmps_vprintf(const char *format, const char *arguments)
{
	struct writer writer;
	uint64 start = 0;
	int count;

	writer.ring = find_ring();
	writer.at = 0;
	writer.writes = false;
	if (!format)
		return RETURN_NULL;
#pragma unroll 1
	for (;;) {
		const char *at = format, *text = format; /* the format, then the texts among its arguments */
		uint32 offset = 0;
		int most = -1;

		count = 0;
		writer.at += 8;
		for (;;) {
			bool wide = false, precise = false, known = false;
			uint32 c, lower;
			uint64 value;

			if (text)
				put_text(writer, text, most);
			text = nullptr;
			most = -1;
			do {
				c = *(const volatile unsigned char *)at;
				at += c != 0;
			} while (c && c != '%');
			if (!c)
				break;
			for (;;) {
				c = *(const volatile unsigned char *)at;
				at += c != 0;
				if (c == '*') {
					offset = (offset + 3) & ~3u;
					value = *(const uint32 *)(arguments + offset);
					offset += 4;
					count++;
					put(writer, value);
					if (precise)
						most = (int)value;
				} else if (c == '.') {
					precise = true;
					most = 0;
				} else if (c - '0' < 10) {
					if (precise)
						most = most * 10 + (int)(c - '0');
				} else if (c == 'l') {
					wide = true;
				} else if (c != '-' && c != '+' && c != ' ' && c != '#' && c != 'h') {
					break;
				}
			}
			lower = c | 32;
			if (c == 'd' || c == 'i' || c == 'u' || c == 'o' || lower == 'x') {
				known = true;
			} else if (c == 'c') {
				known = true;
				wide = false;
			} else if (lower == 'a' || lower == 'e' || lower == 'f' || lower == 'g' || c == 'p' ||
				   c == 's' || c == 'n') {
				known = wide = true;
			}
			if (!known)
				continue;
			count++;
			if (wide) {
				offset = (offset + 7) & ~7u;
				value = *(const uint64 *)(arguments + offset);
				offset += 8;
			} else {
				offset = (offset + 3) & ~3u;
				value = *(const uint32 *)(arguments + offset);
				offset += 4;
			}
			if (c == 's' && value)
				text = (const char *)value;
			else
				put(writer, c == 's' ? TEXT_OF_NULL : value);
		}
		if (writer.writes)
			break;
		if (writer.at > writer.ring->bytes)
			return RETURN_FULL;
		writer.at = start = take(writer.ring, (uint32)writer.at, false);
		writer.writes = true;
	}
	finish(writer, start, KIND_PRINTF);
	return count;
}

/* Who has no room would come to its trap at once, and the stop would come before a word is
 * written. */
static __device__ __forceinline__ void let_others_tell(const struct ring *ring)
{
#pragma unroll 1
	for (int i = 0; i < TOLD_TRIES && !*(const volatile uint64 *)&ring->told; i++)
		asm volatile("nanosleep.u32 %0;" : : "n"(TOLD_NS));
}

/* Who has written a record leaves time for those that are behind, as the trap stops them all: of a
 * small grid each thread's line is read. Those who fill the ring let nobody write more. */
static __device__ __forceinline__ void let_others_write(const struct ring *ring)
{
#pragma unroll 1
	for (int i = 0; i < BEHIND_TRIES && *(const volatile uint64 *)&ring->asserted <= ring->bytes / 2; i++)
		asm volatile("nanosleep.u32 %0;" : : "n"(AHEAD_NS));
}

/* The condition, the file and the function behind the numbers. */
static __device__ __forceinline__ void put_assertion(struct writer &writer, const char *condition, const char *file,
	uint32 line, const char *function)
{
	writer.at += 8;
	put(writer, line);
	put(writer, blockIdx.x);
	put(writer, blockIdx.y);
	put(writer, blockIdx.z);
	put(writer, threadIdx.x);
	put(writer, threadIdx.y);
	put(writer, threadIdx.z);
#pragma unroll 1
	for (int i = 0; i < 3; i++)
		put_text(writer, i == 0 ? condition : i == 1 ? file : function, -1);
}

/* text.c makes the trap that of an assertion. The thread returns behind it, as from the
 * driver's. */
extern "C" __device__ void frmps_assertfail(
	const char *condition, const char *file, uint32 line, const char *function, uint64 char_bytes)
{
	struct writer writer;
	uint64 start = 0;

	writer.ring = find_ring();
	writer.at = 0;
	writer.writes = false;
	let_others_ask();
#pragma unroll 1
	for (;;) {
		put_assertion(writer, condition, file, line, function);
		if (writer.writes || writer.at > writer.ring->bytes / 2)
			break;
		writer.at = start = take(writer.ring, (uint32)writer.at, true);
		if (start == RING_FULL)
			break;
		writer.writes = true;
	}
	if (writer.writes) {
		finish(writer, start, KIND_ASSERT);
		*(volatile uint64 *)&writer.ring->told = 1;
		let_others_write(writer.ring);
	} else {
		let_others_tell(writer.ring);
	}
	/* Always. The compiler does not know, and so has a return behind the trap instead of a loop
	 * without end. */
	if (__activemask())
		asm volatile("trap;");
}
