/** A busy program: how many seconds. Its environment says what Pyroscope's agent for Java does. */
public final class Busy {
    static long countInJava(long until) {
        long sum = 0;
        while (System.nanoTime() < until) {
            for (int i = 0; i < 100_000; i++) {
                sum += (long) i * i;
            }
        }
        return sum;
    }

    public static void main(String[] arguments) {
        System.out.println(countInJava(System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L));
    }
}
