/* Notifications (Programming Model 8; pages 23, 28 and 55). */
#include <vmmc.h>

void on_message(int32 *last, int32 value);
vmmc_result_t listen(int32 *buf, uint32 nwords, vmmc_exphandle_t *handle);
int32 take_sum(void);
void unblock_all(void);

static int32 sum;
static int32 *latest;

/*
 * Programming Model 8: the address is that of the message's last word. Its content may have been
 * overwritten since; the value is as it was sent.
 */
void on_message(int32 *last, int32 value)
{
    latest = last;
    sum += value;
}

/* Page 23: a handler is a vmmc_callback_t. */
vmmc_result_t listen(int32 *buf, uint32 nwords, vmmc_exphandle_t *handle)
{
    vmmc_callback_t proc = on_message;

    return vmmc_ExportRecvBuf(buf, nwords, 1, proc, BUF_WRITE_ONLY, 0, handle);
}

/* Programming Model 8: while notifications are blocked no handler runs. */
int32 take_sum(void)
{
    int32 taken;

    vmmc_BlockNotifications();
    taken = sum;
    sum = 0;
    (void)vmmc_UnblockNotifications();
    return taken;
}

/*
 * Page 55: takes all levels away. The result is positive when notifications are unblocked, 0 while
 * levels are left, and negative in a handler, where the last level stays.
 */
void unblock_all(void)
{
    int status;

    while ((status = vmmc_UnblockNotifications()) == 0)
        ;
    if (status < 0)
        vmmc_Error(status, (char *)"unblock notifications");
}
