// Texts and links: which compiler gets what, what becomes of it where one crashes, does not answer
// or lies, and how many there are.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "tests/unit/server/session/fixture.h"

#define SEALS	   (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define TEXT_BYTES 4096u

static struct wire_option option = {.id = CU_JIT_MAX_REGISTERS, .value = 32};

static struct wire_message load_of(uint32_t module)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE};

	load.load_module =
		(struct wire_load_module){.module = module, .bytes = TEXT_BYTES, .options = {&option, 1}};
	return load;
}

static struct wire_message add_of(uint32_t link, uint32_t position)
{
	return (struct wire_message){.type = WIRE_LINK_ADD,
		.link = {.link = link,
			.position = position,
			.type = CU_JIT_INPUT_PTX,
			.bytes = TEXT_BYTES,
			.name = "input"}};
}

static void request(struct fake_client *who, struct wire_message *message)
{
	int fd = fake_memfd(TEXT_BYTES, SEALS);

	fake_request(fake, who, message, fd);
	close(fd);
}

static uint64_t session_number(void)
{
	return fake_session(fake, 0)->number;
}

static struct fake_compiler *own(void)
{
	return fake_compiler_of(fake, session_number());
}

/* An executor is asked for a load, and has no compiler. */
static void refuse_text(void)
{
	fake_expect(fake, active->socket, WIRE_LOAD_MODULE);
	ck_assert_uint_eq(fake->message.load_module.bytes, TEXT_BYTES);
	fake_reply(fake, active->socket, fake->message.id, CUDA_ERROR_JIT_COMPILER_NOT_FOUND, NULL, 0);
	fake_turn(fake);
}

/* The session's compiler is asked for code. Return: where it writes that, the caller's */
static int expect_text(void)
{
	fake_turn(fake);
	ck_assert_ptr_nonnull(own());
	fake_expect(fake, own()->socket, WIRE_LOAD_MODULE);
	ck_assert_uint_eq(fake->message.load_module.options.count, 1);
	ck_assert_uint_eq(fake->packet.fd_count, 2);
	return packet_take_fd(&fake->packet, 1);
}

static void reply_code(uint64_t bytes)
{
	struct wire_message reply = {.type = WIRE_REPLY, .id = fake->message.id};

	reply.reply = (struct wire_reply){.values = {&bytes, 1}, .text = "remarks"};
	fake_send(fake, own()->socket, &reply, NULL, 0);
}

/* Writes code, and says so. */
static void compile(void)
{
	int fd = expect_text();

	ck_assert_int_eq(pwrite(fd, "code", 4, 0), 4);
	close(fd);
	reply_code(4);
}

/* Somebody is told of the code, as an image like any other that nobody changes any more. */
static void expect_code(const struct fake_child *child)
{
	char code[8] = "";

	fake_expect(fake, child->socket, WIRE_LOAD_MODULE);
	ck_assert_uint_eq(fake->message.load_module.bytes, 4);
	ck_assert_uint_eq(fake->message.load_module.options.count, 0);
	ck_assert_uint_eq(fake->packet.fd_count, 1);
	ck_assert_int_eq(fcntl(fake->packet.fds[0], F_GET_SEALS) & SEALS, SEALS);
	ck_assert_int_eq(pread(fake->packet.fds[0], code, sizeof(code), 0), 4);
	ck_assert_str_eq(code, "code");
}

static void expect_reply(struct fake_client *who, CUresult code)
{
	fake_expect(fake, who->socket, WIRE_REPLY);
	ck_assert_int_eq(fake->message.reply.code, code);
}

static void load_code(CUresult code)
{
	const uint64_t values[4] = {64};

	expect_code(active);
	fake_reply(fake, active->socket, fake->message.id, code, values, code ? 1 : 4);
}

/* Of as much as the program may have, no executor hears. */
TEST(compiling, code_that_is_too_much_is_not_loaded)
{
	struct wire_message load = load_of(1);

	join();
	fake_session(fake, 0)->terms.image_limit = TEXT_BYTES + 3;
	request(&client, &load);
	refuse_text();
	compile();
	expect_reply(&client, CUDA_ERROR_OUT_OF_MEMORY);
	part();
}

TEST(compiling, a_text_is_code_before_anybody_loads_it)
{
	struct wire_message load = load_of(1);

	join();
	request(&client, &load);
	refuse_text();
	compile();
	load_code(0);
	expect_reply(&client, 0);
	ck_assert_str_eq(fake->message.reply.text, "remarks");
	expect_code(standby);
	part();
}

/* The executor wants room for variables: the program asks with the same file once more. */
TEST(compiling, a_text_is_compiled_once)
{
	struct wire_message load = load_of(1);

	join();
	request(&client, &load);
	refuse_text();
	compile();
	load_code(CUDA_ERROR_NOT_READY);
	expect_reply(&client, CUDA_ERROR_NOT_READY);
	load.load_module.variables = client.window_base;
	fake_request(fake, &client, &load, -1);
	load_code(0);
	expect_reply(&client, 0);
	ck_assert_str_eq(fake->message.reply.text, "remarks");
	part();
}

TEST(compiling, what_is_wrong_with_a_text_is_said)
{
	const struct wire_reply wrong = {.code = CUDA_ERROR_INVALID_PTX, .text = "line 1"};
	struct wire_message load = load_of(1), reply = {.type = WIRE_REPLY, .reply = wrong};

	join();
	request(&client, &load);
	refuse_text();
	close(expect_text());
	reply.id = fake->message.id;
	fake_send(fake, own()->socket, &reply, NULL, 0);
	expect_reply(&client, CUDA_ERROR_INVALID_PTX);
	ck_assert_str_eq(fake->message.reply.text, "line 1");
	ck_assert_uint_eq(fake->daemon.counters.compilers_lost, 0);
	/* The compiler has nothing to do with that. */
	request(&client, &load);
	refuse_text();
	compile();
	load_code(0);
	part();
}

/* Twice, each time in a process that has seen nothing of it. */
TEST(compiling, what_crashes_twice_is_an_error)
{
	struct wire_message load = load_of(1);
	const struct compiler *first;

	join();
	request(&client, &load);
	refuse_text();
	close(expect_text());
	first = own()->compiler;
	fake_crash(fake, own());
	close(expect_text());
	ck_assert_ptr_ne(own()->compiler, first);
	fake_crash(fake, own());
	expect_reply(&client, CUDA_ERROR_INVALID_PTX);
	ck_assert_ptr_nonnull(strstr(fake->message.reply.text, "crashed"));
	ck_assert_uint_eq(fake->daemon.counters.compilers_lost, 2);
	fake_expect_nothing(fake, active->socket);
	/* So with the next one, and not sooner. */
	request(&client, &load);
	refuse_text();
	close(expect_text());
	fake_crash(fake, own());
	compile();
	load_code(0);
	expect_reply(&client, 0);
	part();
}

/* It does not know its links any more, which the program begins again. */
TEST(compiling, a_link_that_crashes_twice_is_an_error)
{
	struct wire_message add = add_of(1, 3);

	join();
	for (int i = 0; i < 2; i++) {
		request(&client, &add);
		fake_turn(fake);
		fake_expect(fake, own()->socket, WIRE_LINK_ADD);
		fake_crash(fake, own());
		if (i)
			break;
		fake_expect(fake, own()->socket, WIRE_LINK_ADD);
		fake_reply(fake, own()->socket, fake->message.id, CUDA_ERROR_ILLEGAL_STATE, NULL, 0);
		expect_reply(&client, CUDA_ERROR_ILLEGAL_STATE);
	}
	expect_reply(&client, CUDA_ERROR_INVALID_PTX);
	ck_assert_uint_eq(fake->message.reply.names.count, 2);
	ck_assert_ptr_nonnull(strstr(fake->message.reply.names.at[0], "crashed"));
	part();
}

/* Set before: five seconds. */
TEST(five_seconds, who_does_not_end_is_ended)
{
	struct wire_message load = load_of(1);

	join();
	request(&client, &load);
	refuse_text();
	for (int i = 0; i < 2; i++) {
		close(expect_text());
		FAKE_SKIP_WHILE(fake, fake->daemon.counters.compilers_lost == (uint64_t)i);
	}
	expect_reply(&client, CUDA_ERROR_INVALID_PTX);
	ck_assert_ptr_nonnull(strstr(fake->message.reply.text, "within 5 s"));
	part();
}

/* It could change it behind the back of those that load it, or keep the daemon waiting. _i: mapped,
 * or open. */
TEST_LOOP(compiling, code_that_its_compiler_holds_on_to_is_refused, 0, 2)
{
	struct wire_message load = load_of(1);
	void *mapped;
	int fd;

	join();
	request(&client, &load);
	refuse_text();
	fd = expect_text();
	ck_assert_int_eq(pwrite(fd, "code", 4, 0), 4);
	mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(mapped, MAP_FAILED);
	if (_i)
		munmap(mapped, 4096);
	else
		close(fd);
	reply_code(4);
	expect_reply(&client, CUDA_ERROR_OUT_OF_MEMORY);
	fake_expect_nothing(fake, active->socket);
	if (_i)
		close(fd);
	else
		munmap(mapped, 4096);
	part();
}

/* One that it names is as long as it is. */
TEST(compiling, code_that_is_not_there_is_refused)
{
	struct wire_message load = load_of(1);

	join();
	request(&client, &load);
	refuse_text();
	close(expect_text());
	reply_code(4);
	expect_reply(&client, CUDA_ERROR_OUT_OF_MEMORY);
	part();
}

/* It breaks the protocol, which counts as a crash. */
TEST(compiling, a_compiler_that_sends_a_descriptor_is_given_up)
{
	struct wire_message load = load_of(1), reply = {.type = WIRE_REPLY, .reply.text = ""};
	int fd = fake_memfd(4096, 0);

	join();
	request(&client, &load);
	refuse_text();
	close(expect_text());
	reply.id = fake->message.id;
	fake_send(fake, own()->socket, &reply, &fd, 1);
	close(fd);
	ck_assert_uint_eq(fake->daemon.counters.compilers_lost, 1);
	compile();
	load_code(0);
	expect_reply(&client, 0);
	part();
}

TEST(compiling, a_dropped_link_needs_no_compiler)
{
	struct wire_message drop = {.type = WIRE_LINK_DROP, .link = {.link = 1, .name = ""}};

	join();
	fake_request(fake, &client, &drop, -1);
	expect_reply(&client, 0);
	ck_assert_ptr_null(own());
	part();
}

TEST(compiling, compilers_go_with_their_sessions)
{
	struct wire_message add = add_of(1, 0);

	join();
	/* Ready before anybody asks. */
	ck_assert_uint_eq(fake_count_compilers(fake), 1);
	request(&client, &add);
	fake_turn(fake);
	ck_assert_uint_eq(fake_count_compilers(fake), 2);
	fake_leave(fake, &client);
	ck_assert_uint_eq(fake_count_compilers(fake), 0);
	fake_expect(fake, active->socket, WIRE_CLOSE_SESSION);
	end();
}

/* Set before: one at a time. Who goes leaves its place at once. */
TEST(one_at_a_time, one_of_a_user_compiles_at_a_time)
{
	struct wire_message add = add_of(1, 0);
	struct fake_client other;
	uint64_t first;

	join();
	first = session_number();
	fake_join(fake, &other, active, standby);
	request(&client, &add);
	fake_turn(fake);
	fake_expect(fake, fake_compiler_of(fake, first)->socket, WIRE_LINK_ADD);
	request(&other, &add);
	fake_turn(fake);
	ck_assert_ptr_null(fake_compiler_of(fake, first + 1));
	fake_leave(fake, &client);
	fake_turn(fake);
	ck_assert_ptr_nonnull(fake_compiler_of(fake, first + 1));
	fake_expect(fake, fake_compiler_of(fake, first + 1)->socket, WIRE_LINK_ADD);
	fake_leave(fake, &other);
	end();
}

/* Whoever has had nothing to do for longest makes room. */
TEST(compiling, a_user_has_a_bounded_number_of_compilers)
{
	enum { MOST = 32 };
	struct fake_client clients[MOST + 1];
	struct wire_message add = add_of(1, 0);
	uint64_t first;

	boot();
	for (unsigned i = 0; i <= MOST; i++)
		fake_join(fake, &clients[i], active, standby);
	first = session_number();
	for (unsigned i = 0; i <= MOST; i++) {
		request(&clients[i], &add);
		fake_turn(fake);
		fake_expect(fake, fake_compiler_of(fake, first + i)->socket, WIRE_LINK_ADD);
		fake_reply(fake, fake_compiler_of(fake, first + i)->socket, fake->message.id, 0, NULL, 0);
		expect_reply(&clients[i], 0);
	}
	/* And the one that is ready. */
	ck_assert_uint_eq(fake_count_compilers(fake), MOST + 1);
	ck_assert_ptr_null(fake_compiler_of(fake, first));
	ck_assert_ptr_nonnull(fake_compiler_of(fake, first + 1));
	for (unsigned i = 0; i <= MOST; i++)
		fake_leave(fake, &clients[i]);
	end();
}

/* The record says that what the executor has is code. */
TEST(records, a_daemon_that_dies_behind_the_compilation)
{
	struct wire_message load = load_of(1);
	uint64_t id;

	join();
	request(&client, &load);
	refuse_text();
	compile();
	expect_code(active);
	id = fake->message.id;
	ck_assert_int_eq(fake_come_back(fake), 0);
	expect_code(active);
	ck_assert_uint_eq(fake->message.id, id);
	fake_reply(fake, active->socket, id, 0, NULL, 0);
	expect_reply(&client, 0);
	expect_code(standby);
	part();
}

/* It is compiled anew, by a compiler of the next daemon. */
TEST(records, a_daemon_that_dies_before_there_is_code)
{
	struct wire_message load = load_of(1);

	join();
	request(&client, &load);
	refuse_text();
	close(expect_text());
	ck_assert_int_eq(fake_come_back(fake), 0);
	refuse_text();
	compile();
	load_code(0);
	expect_reply(&client, 0);
	expect_code(standby);
	part();
}

static void keep_records(void)
{
	fake_with_records = true;
}

static void one_at_a_time(void)
{
	setenv("FRMPS_COMPILATIONS", "1", 1);
}

static void five_seconds(void)
{
	setenv("FRMPS_COMPILE_SECONDS", "5", 1);
}

int main(void)
{
	Suite *suite = suite_create("compiling");
	TCase *all = suite_case(suite, "compiling"), *records = tcase_create("records");
	TCase *one = suite_case(suite, "one at a time"), *late = suite_case(suite, "five seconds");

	fake_prepare();
	suite_add(all, "compiling");
	tcase_add_checked_fixture(records, keep_records, NULL);
	suite_add(records, "records");
	suite_add_tcase(suite, records);
	tcase_add_checked_fixture(one, one_at_a_time, NULL);
	suite_add(one, "one_at_a_time");
	tcase_add_checked_fixture(late, five_seconds, NULL);
	suite_add(late, "five_seconds");
	return suite_run(suite);
}
