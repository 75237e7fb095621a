// Channels as the driver makes and frees them, and the control that takes them off the device. The
// test is the kernel-mode driver.

#include <string.h>
#include <sys/ioctl.h>

#include "server/backend/cuda/channels.h"
#include "tests/lib/suite.h"

#define CLIENT	  0xc1d00001u
#define DEVICE	  0x5c000001u
#define SUBDEVICE 0x5c000002u
#define GROUP	  0x5c000010u
#define CHANNEL	  0x5c000100u
#define FD	  7

/* NVOS64_PARAMETERS and NVOS21_PARAMETERS. */
struct alloc64 {
	struct control_alloc alloc;
	uint64_t parameters, rights;
	uint32_t size, flags, status, pad;
};
struct alloc21 {
	struct control_alloc alloc;
	uint64_t parameters;
	uint32_t size, status;
};

static struct control asked[8];
static struct control_disable lists[8];
static unsigned count;
static uint32_t answer;
static int result;

static int execute(int fd, unsigned long request, void *argument)
{
	struct control *control = argument;

	ck_assert_int_eq(fd, FD);
	ck_assert_uint_eq(_IOC_TYPE(request), DRIVER_TYPE);
	ck_assert_uint_eq(_IOC_NR(request), DRIVER_CONTROL);
	ck_assert_uint_eq(_IOC_SIZE(request), 32);
	ck_assert_uint_eq(control->command, CONTROL_DISABLE);
	ck_assert_uint_eq(control->size, 536);
	ck_assert_uint_lt(count, 8);
	memcpy(&lists[count], (const void *)(uintptr_t)control->parameters, sizeof(lists[0]));
	asked[count++] = *control;
	control->status = answer;
	return result;
}

static void make(uint32_t parent, uint32_t object, uint32_t class, uint32_t status)
{
	struct alloc64 large = {.alloc = {CLIENT, parent, object, class}, .status = status};
	struct alloc21 small = {.alloc = {CLIENT, parent, object, class}, .status = status};

	ck_assert_uint_eq(sizeof(large), 48);
	ck_assert_uint_eq(sizeof(small), 32);
	if (object & 1)
		channels_note(FD, _IOWR(DRIVER_TYPE, DRIVER_ALLOC, struct alloc64), &large);
	else
		channels_note(FD, _IOWR(DRIVER_TYPE, DRIVER_ALLOC, struct alloc21), &small);
}

static void unmake(uint32_t object, uint32_t status)
{
	struct control_free freed = {CLIENT, 0, object, status};

	channels_note(FD, _IOWR(DRIVER_TYPE, DRIVER_FREE, struct control_free), &freed);
}

static void begin(void)
{
	channels_forget();
	count = 0;
	answer = 0;
	result = 0;
	make(CLIENT, DEVICE, 0x80, 0);
	make(DEVICE, SUBDEVICE, CLASS_SUBDEVICE, 0);
	make(DEVICE, GROUP, 0xa06c, 0);
}

TEST(channels, all_channels_that_there_are_are_disabled)
{
	begin();
	for (uint32_t i = 0; i < 5; i++)
		make(i < 3 ? GROUP : DEVICE, CHANNEL + i, 0xc86f, 0);
	make(GROUP, CHANNEL + 5, 0xc86f, 0x1a); /* not made */
	make(CHANNEL, CHANNEL + 6, 0xc8b5, 0);	/* an engine's object */
	make(SUBDEVICE, CHANNEL + 7, 0x79, 0);
	unmake(CHANNEL + 1, 0);
	unmake(CHANNEL + 2, 0x57); /* not freed */
	ck_assert_int_eq(channels_fence(execute), CUDA_SUCCESS);
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(asked[0].client, CLIENT);
	ck_assert_uint_eq(asked[0].object, SUBDEVICE);
	ck_assert_uint_eq(lists[0].disable, 1);
	ck_assert_uint_eq(lists[0].only_scheduling, 0);
	ck_assert_uint_eq(lists[0].event, 0);
	ck_assert_uint_eq(lists[0].count, 4);
	ck_assert_uint_eq(lists[0].objects[0], CHANNEL);
	ck_assert_uint_eq(lists[0].objects[1], CHANNEL + 2);
	ck_assert_uint_eq(lists[0].objects[3], CHANNEL + 4);
	ck_assert_uint_eq(lists[0].clients[3], CLIENT);
}

TEST(channels, what_is_above_a_channel_takes_it_along)
{
	begin();
	make(GROUP, CHANNEL, 0xc86f, 0);
	make(DEVICE, CHANNEL + 1, 0xc86f, 0);
	unmake(GROUP, 0);
	ck_assert_int_eq(channels_fence(execute), CUDA_SUCCESS);
	ck_assert_uint_eq(lists[0].count, 1);
	ck_assert_uint_eq(lists[0].objects[0], CHANNEL + 1);
	unmake(CLIENT, 0);
	ck_assert_int_eq(channels_fence(execute), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(count, 1);
}

TEST(channels, many_take_several_controls)
{
	begin();
	for (uint32_t i = 0; i < 150; i++)
		make(GROUP, CHANNEL + i, 0xc96f, 0);
	ck_assert_int_eq(channels_fence(execute), CUDA_SUCCESS);
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(lists[0].count, 64);
	ck_assert_uint_eq(lists[1].objects[0], CHANNEL + 64);
	ck_assert_uint_eq(lists[2].count, 22);
	ck_assert_uint_eq(lists[2].objects[21], CHANNEL + 149);
}

TEST(channels, nothing_is_certain_where_something_is_not_known)
{
	begin();
	ck_assert_int_eq(channels_fence(execute), CUDA_ERROR_NOT_SUPPORTED); /* no channels */
	make(GROUP, CHANNEL, 0xc86f, 0);
	answer = 0x56;
	ck_assert_int_eq(channels_fence(execute), CUDA_ERROR_UNKNOWN);
	answer = 0;
	result = -1;
	ck_assert_int_eq(channels_fence(execute), CUDA_ERROR_UNKNOWN);
	result = 0;
	ck_assert_int_eq(channels_fence(execute), CUDA_SUCCESS);
	unmake(SUBDEVICE, 0);
	ck_assert_int_eq(channels_fence(execute), CUDA_ERROR_NOT_SUPPORTED);
	make(DEVICE, SUBDEVICE, CLASS_SUBDEVICE, 0);
	ck_assert_int_eq(channels_fence(execute), CUDA_SUCCESS);
	for (uint32_t i = 1; i < 2000; i++)
		make(GROUP, CHANNEL + i, 0xc86f, 0);
	ck_assert_int_eq(channels_fence(execute), CUDA_ERROR_NOT_SUPPORTED); /* more than can be noted */
}

/* A channel may have been made by what is not understood. */
TEST_LOOP(channels, a_form_that_is_not_known_makes_it_impossible, 0, 4)
{
	uint8_t bytes[64] = {0};
	uint32_t wrapped[4] = {_i == 2 ? DRIVER_ALLOC : DRIVER_CONTROL, 48, 0, 0};

	begin();
	make(GROUP, CHANNEL, 0xc86f, 0);
	if (_i == 0)
		channels_note(FD, _IOWR(DRIVER_TYPE, DRIVER_ALLOC, uint8_t[56]), bytes);
	else if (_i == 1)
		channels_note(FD, _IOWR(DRIVER_TYPE, DRIVER_FREE, uint8_t[24]), bytes);
	else
		channels_note(FD, _IOWR(DRIVER_TYPE, DRIVER_WRAPPED, uint32_t[4]), wrapped);
	ck_assert_int_eq(channels_fence(execute), _i < 3 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS);
}

/* Whatever else the driver asks for. */
TEST(channels, other_requests_are_left_alone)
{
	uint8_t bytes[64] = {0};

	begin();
	channels_note(FD, _IOWR(DRIVER_TYPE, DRIVER_CONTROL, struct control), bytes);
	channels_note(FD, _IOWR('T', DRIVER_ALLOC, struct alloc64), bytes);
	channels_note(FD, _IOWR(DRIVER_TYPE, DRIVER_ALLOC, struct alloc64), NULL);
	ck_assert_int_eq(channels_fence(execute), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_uint_eq(count, 0);
}

int main(void)
{
	Suite *suite = suite_create("server/backend/channels");
	TCase *tests = suite_case(suite, "channels");

	suite_add(tests, "channels");
	return suite_run(suite);
}
