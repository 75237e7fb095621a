// See code_caches.h. A multiprocessor has four parts, each with a cache of its own in front of the
// common ones. A warp belongs to the part of its number, modulo 4. The kernel notes for each warp
// where it was: a turn is over when the notes have all parts of all multiprocessors. Until then the
// kernel is launched again and again, each time somebody looks.

#include "server/backend/cuda/code_caches.h"

#include <stdint.h>
#include <string.h>

#include "server/backend/backend.h"
#include "server/backend/cuda/code_memory.h"
#include "server/clock.h"
#include "server/log.h"

#define PARTS		4u
#define MULTIPROCESSORS 1024u /* numbers that they can have */
#define NOTES		(MULTIPROCESSORS * PARTS)

/* Of the kernel. An empty device spreads this over all parts at once. */
#define BLOCKS_EACH 4u
#define THREADS	    128u

/* Places in the memory: the kernel, code for the trial, the notes, a byte each. */
#define TRIAL_AT 4096u
#define NOTES_AT 8192u
#define BYTES	 (NOTES_AT + NOTES)
/* A turn takes 20 us of a device that has room for the kernel. */
#define RENEWAL_NS (UINT64_C(10) * CLOCK_MS)
/* More launches than an empty device needs. */
#define TRIAL_LAUNCHES 100u

/* For devices 9.0. */
static const uint64_t forget[][2] = {
	{0x00000000ff00798f, 0x000fe2000200c000}, /* CCTL.I.IVALL, and some time for it */
	{0x0000000000007918, 0x000fc00000000000}, /* NOP */
	{0x0000000000007918, 0x000fc00000000000},
	{0x0000000000007918, 0x000fc00000000000},
};
/* By ptxas 13.0: the byte at (first parameter) + 4 * %smid + (%warpid & 3) = a value. */
#define VALUE_AT 9u
static const uint64_t note[][2] = {
	{0x00000a00ff017b82, 0x000fe20000000800}, /* LDC R1, c[0][0x28] */
	{0x0000000000037919, 0x000e220000004300}, /* S2R R3, SR_VIRTUALSMID */
	{0x0000840000047ab9, 0x000fe20000000a00}, /* ULDC.64 UR4, c[0][0x210] */
	{0x0000000000007919, 0x000e640000000300}, /* S2R R0, SR_VIRTID */
	{0x00000008ff007819, 0x002fc80000011600}, /* SHF.R.U32 R0, R0, 8 */
	{0x000000070000781a, 0x000fc80000000000}, /* SGXT.U32 R0, R0, 7 */
	{0x0000000300007812, 0x000fca00078ec0ff}, /* LOP3 R0 = R0 & 3 */
	{0x0000000403007824, 0x001fca00078e0200}, /* IMAD R0 = R3 * 4 + R0 */
	{0x0000000400027c10, 0x000fe2000ff1e0ff}, /* IADD3 R2 = R0 + UR4 */
	{0x00000000ff007435, 0x000fc800000001ff}, /* HFMA2 R0 = value */
	{0x00000005ff037e24, 0x000fe200080e06ff}, /* IMAD.X R3 = UR5 + carry */
	{0x0000820000047ab9, 0x000fc80000000a00}, /* ULDC.64 UR4, c[0][0x208] */
	{0x0000000002007986, 0x000fe2000c101104}, /* STG.U8 [R2] = R0 */
	{0x000000000000794d, 0x000fea0003800000}, /* EXIT */
	{0xfffffffc00fc7947, 0x000fc0000383ffff}, /* BRA to itself */
};

/* What warps note. */
enum {
	KERNEL = 1,
	OLD, /* code of the trial, and other code in the same place */
	NEW,
};

static struct {
	enum {
		CACHES_LEFT, /* alone: nothing is ever forgotten */
		CACHES_REST,
		CACHES_TURN, /* the kernel was launched */
	} state;
	const struct trampoline *enter;
	uint32_t parts; /* of all multiprocessors together */
	CUstream stream;
	struct code_memory memory;
} caches;

/* ---- the kernel ---- */

/* Code that notes a value, and before that tells the caches if @forgets. */
static CUresult put(uint32_t at, bool forgets, uint8_t value)
{
	uint64_t code[sizeof(forget) / 8 + sizeof(note) / 8];
	size_t head = forgets ? sizeof(forget) : 0;

	memcpy(code, forget, head);
	memcpy((uint8_t *)code + head, note, sizeof(note));
	code[head / 8 + 2 * VALUE_AT] |= (uint64_t)value << 32;
	return code_memory_write(caches.memory.at + at, code, head + sizeof(note));
}

static CUresult launch(uint32_t at)
{
	uint8_t carried[256] = {0};
	size_t bytes = caches.enter->carried;
	const uint64_t notes = caches.memory.at + NOTES_AT, entry = caches.memory.at + at;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, carried, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
		CU_LAUNCH_PARAM_END};

	if (bytes < CODE_CACHES_CARRIED || bytes > sizeof(carried))
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(carried, &notes, sizeof(notes));
	memcpy(carried + bytes - sizeof(entry), &entry, sizeof(entry));
	return driver.launch(caches.enter->function, BLOCKS_EACH * caches.parts / PARTS, 1, 1, THREADS, 1, 1,
		0, caches.stream, NULL, extra);
}

static CUresult clear(void)
{
	return driver.set8(caches.memory.at + NOTES_AT, 0, NOTES, caches.stream);
}

/* Once the stream is empty. Return: false: there are other notes. @ret_parts: with this one */
static bool read_notes(uint8_t value, uint32_t *ret_parts)
{
	static uint8_t notes[NOTES];
	bool has_others = driver.copy_to_host(notes, caches.memory.at + NOTES_AT, NOTES, caches.stream) ||
			  driver.stream_synchronize(caches.stream);

	*ret_parts = 0;
	for (uint32_t i = 0; !has_others && i < NOTES; i++) {
		has_others = notes[i] && notes[i] != value;
		*ret_parts += notes[i] == value;
	}
	return !has_others;
}

/* ---- trial ---- */

/* Return: true if all parts have run the code, and each has noted this value */
static bool run_everywhere(uint32_t at, uint8_t value)
{
	CUresult code = clear();
	uint32_t parts = 0;

	for (uint32_t i = 0; !code && parts < caches.parts && i < TRIAL_LAUNCHES; i++) {
		code = launch(at);
		if (!code)
			code = driver.stream_synchronize(caches.stream);
		if (!code && !read_notes(value, &parts))
			return false;
	}
	return !code && parts == caches.parts;
}

static bool is_proved(void)
{
	return !put(0, true, KERNEL) && !put(TRIAL_AT, false, OLD) && run_everywhere(TRIAL_AT, OLD) &&
	       !put(TRIAL_AT, false, NEW) && run_everywhere(0, KERNEL) && run_everywhere(TRIAL_AT, NEW);
}

void code_caches_open(CUdevice device, const struct trampoline *enter)
{
	int multiprocessors = 0, least, greatest;
	CUresult code =
		driver.device_attribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);

	caches.enter = enter;
	caches.parts = (uint32_t)multiprocessors * PARTS;
	if (!code)
		code = driver.context_priorities(&least, &greatest);
	if (!code)
		code = driver.stream_create(&caches.stream, CU_STREAM_NON_BLOCKING, greatest);
	if (!code)
		code = code_memory_take(BYTES, &caches.memory);
	if (!code)
		code = code_memory_settle(&caches.memory, 0);
	if (!code && is_proved())
		caches.state = CACHES_REST;
	else
		log_warning("instruction caches do not forget as they should on this device: each load of "
			    "code needs addresses of its own (code %d)",
			(int)code);
}

void code_caches_close(void)
{
	memset(&caches, 0, sizeof(caches));
}

/* ---- turns ---- */

static void go_on(CUresult code)
{
	caches.state = code ? CACHES_LEFT : CACHES_TURN;
}

static void begin(void)
{
	CUresult code = clear();

	code_memory_turn();
	go_on(code ? code : launch(0));
}

/* The kernel has ended. */
static void look(void)
{
	uint32_t parts;

	if (!read_notes(KERNEL, &parts) || parts < caches.parts) {
		go_on(launch(0));
		return;
	}
	caches.state = CACHES_REST;
	code_memory_renew();
}

void code_caches_tend(void)
{
	if (caches.state == CACHES_TURN && !driver.stream_query(caches.stream))
		look();
	if (caches.state == CACHES_REST && code_memory_is_worn())
		begin();
}

static bool is_due(void)
{
	return caches.state == CACHES_TURN || (caches.state == CACHES_REST && code_memory_is_worn());
}

bool code_caches_renew(void)
{
	uint64_t end = clock_now() + RENEWAL_NS;
	bool was_due = is_due();

	while (is_due() && clock_now() < end)
		code_caches_tend();
	return was_due && !is_due();
}
